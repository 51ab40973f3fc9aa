"""Since when the training processes of a host have shown nothing: no output, so no step. Pure."""

from collections.abc import Iterable, Mapping

GPU_WORKS = 0.05  # of one GPU
_NONE: Mapping[str, tuple[float, float]] = {}


class Progress:
    """Knows, of each process of training, when it was last seen to get on, and what it has worked since."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self._cpu: dict[str, float] = {}
        self._cycled: dict[str, float] = {}

    def look(
        self,
        now: float,
        training: Iterable[str],
        used: Mapping[str, Mapping[str, float]],
        gpus: Iterable[float] = (),
        threads: Mapping[str, tuple[float, float]] = _NONE,
    ) -> None:
        """Note one sample. `used`: PROCESS_PART; `gpus`: how busy each is, from 0 to 1; `threads`: seconds that threads
        could have run, and had no processor, and that the one which cycles took or would have taken."""
        names = list(training)
        busy = any(gpu > GPU_WORKS for gpu in gpus)
        self._since = {name: self._since.get(name, now) for name in names}
        worked = {name: used.get(name, {}).get("cpu", 0.0) + threads.get(name, (0.0, 0.0))[0] for name in names}
        self._cpu = {name: self._cpu.get(name, 0.0) + worked[name] for name in names}
        self._cycled = {name: self._cycled.get(name, 0.0) + threads.get(name, (0.0, 0.0))[1] for name in names}
        for name in names:
            if busy or used.get(name, {}).get("output"):
                self._since[name], self._cpu[name], self._cycled[name] = now, 0.0, 0.0

    def still(self, now: float, least: float) -> dict[str, list[float]]:
        """Return {process: [seconds without a sign, CPUs used meanwhile, of which by the thread that cycles]}.

        It is empty if any has had a sign within `least` seconds.
        """
        seconds = {name: now - since for name, since in self._since.items()}
        if not seconds or min(seconds.values()) < least:
            return {}
        return {
            name: [round(gone, 1), round(self._cpu[name] / gone, 4), round(self._cycled[name] / gone, 4)]
            for name, gone in seconds.items()
            if gone > 0
        }
