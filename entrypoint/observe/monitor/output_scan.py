"""Collect what a record keeps of programs' output: its size, metrics, the last lines, Horovod's missing ranks."""

import re
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator

from entrypoint.observe.monitor.horovod import Stalls
from entrypoint.observe.monitor.metrics import Reader
from entrypoint.observe.monitor.requests import Wanted

LINES, WIDTH = 5, 300  # recorded of a process: its last lines, and characters of each


class Printed:
    """Collect the output of a host's processes until it is taken.

    `wanted`: (name, expression) of metrics; `log` is called if an expression is dropped.
    """

    def __init__(self, wanted: Collection[tuple[str, str]], log: Callable[[str], None]) -> None:
        self._wanted = [Wanted(name, expression, log) for name, expression in wanted]
        self._bytes: Counter[str] = Counter()
        self._readers: dict[str, Reader] = {}
        self._lines: dict[str, deque[str]] = {}
        self.stalls = Stalls()

    def scan(self, process: str, text: str) -> None:
        self._bytes[process] += len(self.stalls.without(process, text))
        self.reader(process).read(text)
        self._lines.setdefault(process, deque(maxlen=LINES)).extend(last_lines(text))

    def count(self, process: str, count: int) -> None:
        """Note that a process has printed `count` more bytes, which were not sent here."""
        self._bytes[process] += count

    def reader(self, process: str) -> Reader:
        return self._readers.setdefault(process, Reader(wanted=self._wanted))

    def take_bytes(self) -> Counter[str]:
        """Return how many bytes each process has printed, without Horovod's stall warnings."""
        taken, self._bytes = self._bytes, Counter()
        return taken

    def take_lines(self, *processes: str) -> Iterator[tuple[str, list[str]]]:
        """Yield (process, its last lines), for these processes or for all."""
        for process in processes or list(self._lines):
            if lines := self._lines.pop(process, None):
                yield process, list(lines)

    def take_metrics(self) -> "Iterator[tuple[str, dict[str, float]]]":
        """Yield (process, the last value of each of its metrics)."""
        for process, reader in self._readers.items():
            if found := reader.take():
                yield process, found


def last_lines(text: str) -> list[str]:
    """Return the last lines of a text as a terminal would show them: progress bars overwrite themselves."""
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in text[-LINES * WIDTH :].split("\n")]
    return [_CONTROLS.sub("", line)[:WIDTH] for line in lines if line.strip()][-LINES:]


_CONTROLS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f-\x9f]")
