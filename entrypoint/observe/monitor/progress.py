"""Measure how long a host's training processes show no progress, and the CPU time that they use meanwhile. Pure.

Signs of progress are output, messages by `sagemaker_tf_data`, bytes that are read, written or received, and a GPU that
works. A busy CPU is not a sign: NCCL, CUDA and MPI wait busily.
"""

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence

from entrypoint.observe.monitor.threads import Work

GPU_WORKS = 0.05  # share of the time in which a GPU is busy; above it, the GPU may work
FILE_BYTES_PER_SECOND = 16_000.0  # read, written or received by one process: trackers and heartbeats move less
PEER_BYTES_PER_SECOND = 1e6  # exchanged with other hosts per training process: Horovod's polling takes less
BYTES_SECONDS = 10.0  # time over which file bytes are averaged
_NO_WORK: Mapping[str, Work] = {}
_NO_BYTES: Mapping[str, float] = {}


class Progress:
    """Track the last sign of progress of each training process, and its recent CPU use.

    `window`: seconds over which CPU use is averaged; a process that stops working is recognised within that time.
    """

    def __init__(self, window: float = 600.0) -> None:
        self._window = window
        self._since: dict[str, float] = {}
        self._work: dict[str, deque[tuple[float, Sequence[float]]]] = {}  # (begin, CPU seconds as in `still`)
        self._bytes: dict[str, deque[tuple[float, float]]] = {}
        self._looked: float | None = None
        self._looks_at_threads = False

    def look(
        self,
        now: float,
        training: Iterable[str],
        used: Mapping[str, Mapping[str, float]],
        gpus: Collection[Sequence[float]] = (),
        told: Collection[str] = (),
        peer_bytes: float = 0.0,
        threads: Mapping[str, Work] = _NO_WORK,
        moved: Mapping[str, float] = _NO_BYTES,
    ) -> None:
        """Note one sample.

        `used` and `gpus`: as in record/lines.py; `told`: processes whose scripts have sent a message;
        `peer_bytes`: bytes per second between this host and others; `threads`: the work of each process's threads;
        `moved`: bytes that each process has read, written and received. The last two are empty unless measured.
        """
        names = list(training)
        all_work = any(works(gpu) for gpu in gpus) or peer_bytes > PEER_BYTES_PER_SECOND * max(1, len(names))
        self._since = {name: self._since.get(name, now) for name in names}
        self._work = {name: self._work.get(name) or deque() for name in names}
        self._bytes = {name: self._bytes.get(name) or deque() for name in names} if moved else {}
        if threads and not self._looks_at_threads:  # earlier samples do not know what the threads did
            for samples in self._work.values():
                samples.clear()
        before, self._looked, self._looks_at_threads = now if self._looked is None else self._looked, now, bool(threads)
        for name in names:
            work = threads.get(name) or Work()
            samples = self._work[name]
            samples.append((before, (used.get(name, {}).get("cpu", 0.0) + work.waited, *_of(work))))
            while samples and samples[0][0] < now - self._window:
                samples.popleft()
            if all_work or name in told or used.get(name, {}).get("output") or self._moves(name, now, moved):
                self._since[name] = now
                samples.clear()

    def _moves(self, name: str, now: float, moved: Mapping[str, float]) -> bool:
        """Return whether a process reads, writes or receives more than heartbeats would."""
        if name not in moved:
            return False
        samples = self._bytes[name]
        samples.append((now, moved[name]))
        while samples[0][0] <= now - BYTES_SECONDS:
            samples.popleft()
        seconds = max(1.0, now - samples[0][0])
        return sum(count for _, count in samples) > FILE_BYTES_PER_SECOND * seconds

    def still(self, now: float, least: float) -> dict[str, list[float]]:
        """Return {process: [seconds without a sign of progress, CPUs, ...]}: `Still` of record/lines.py.

        Return {} if any process has shown progress within `least` seconds.
        """
        seconds = {name: now - since for name, since in self._since.items()}
        if not seconds or min(seconds.values()) < least:
            return {}
        return {
            name: [round(gone, 1), *(round(share, 4) for share in self._shares(name, now))]
            for name, gone in seconds.items()
            if gone > 0
        }

    def _shares(self, name: str, now: float) -> list[float]:
        samples = self._work[name]
        if not samples:
            return [0.0] * 5
        seconds = max(0.01, now - samples[0][0])
        return [sum(column) / seconds for column in zip(*(work for _, work in samples), strict=True)]


def works(gpu: Sequence[float]) -> bool:
    """Return whether a GPU works, from [busy, bytes used, bytes in all, watts, memory's activity].

    A kernel that waits for another GPU keeps its GPU busy, but touches no memory. Older records lack the last figure.
    """
    return gpu[0] > GPU_WORKS and (len(gpu) < 5 or gpu[4] > 0)


def _of(work: Work) -> tuple[float, float, float, float]:
    return work.waiters, work.main, work.ran, float(work.wakes)
