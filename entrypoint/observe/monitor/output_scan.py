"""What programs print, as far as a record has it: how much, metrics, the last lines, whom Horovod misses."""

import re
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator

from entrypoint.observe.monitor.horovod import Stalls
from entrypoint.observe.monitor.metrics import Reader
from entrypoint.observe.monitor.requests import Wanted

LINES, WIDTH = 5, 300  # last lines of a process, and characters of each, that are recorded


class Printed:
    """What the processes of a host have printed since it was last asked for.

    `wanted`: (name, expression) of metrics; `say` is told of an expression that is left out.
    """

    def __init__(self, wanted: Collection[tuple[str, str]], say: Callable[[str], None]) -> None:
        self._wanted = [Wanted(name, expression, say) for name, expression in wanted]
        self._bytes: Counter[str] = Counter()
        self._readers: dict[str, Reader] = {}
        self._lines: dict[str, deque[str]] = {}
        self.stalls = Stalls()

    def hear(self, process: str, text: str) -> None:
        """Hear lines of a process."""
        self._bytes[process] += len(self.stalls.without(process, text))
        self.reader(process).read(text)
        self._lines.setdefault(process, deque(maxlen=LINES)).extend(last_lines(text))

    def hear_of(self, process: str, count: int) -> None:
        """Hear that a process has printed so many bytes more, which nobody looked at."""
        self._bytes[process] += count

    def reader(self, process: str) -> Reader:
        """Return what knows the metrics of a process."""
        return self._readers.setdefault(process, Reader(wanted=self._wanted))

    def take_bytes(self) -> Counter[str]:
        """Return how much each has printed; what Horovod prints of a stall does not count."""
        taken, self._bytes = self._bytes, Counter()
        return taken

    def take_lines(self, *processes: str) -> Iterator[tuple[str, list[str]]]:
        """Return (process, its last lines), of these processes or of all."""
        for process in processes or list(self._lines):
            if lines := self._lines.pop(process, None):
                yield process, list(lines)

    def take_metrics(self) -> "Iterator[tuple[str, dict[str, float]]]":
        """Return (process, the last value of each of its metrics)."""
        for process, reader in self._readers.items():
            if found := reader.take():
                yield process, found


def last_lines(text: str) -> list[str]:
    """Return the last lines of what was printed, of each what a terminal would show last: progress bars overwrite."""
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in text[-LINES * WIDTH :].split("\n")]
    return [_CONTROLS.sub("", line)[:WIDTH] for line in lines if line.strip()][-LINES:]


_CONTROLS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f-\x9f]")
