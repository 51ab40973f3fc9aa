"""Read the output of `entrypoint local`, and record the time of each event.

Scripts print the times of their own actions. All hosts share the clock of one machine.
"""

import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field

KEPT = 1 << 20  # bytes that are kept of its beginning, and of its end

_DEED = re.compile(rb"(acts|leaves|hears SIGTERM) at (\d+\.\d+)")
_TOLD = re.compile(rb"^\[(algo-\d+)\] job (?:failed|succeeded|stopped)", re.MULTILINE)
_FAULT = re.compile(rb"^fault after .*$", re.MULTILINE)
_NO_FAULT = re.compile(r"^fault (?:never happened|failed).*$", re.MULTILINE)
_EXIT = re.compile(r"^(algo-\d+) +(\S+)", re.MULTILINE)


@dataclass
class Terminal:
    """The output, and the times of events in seconds since 1970."""

    head: bytearray = field(default_factory=bytearray)
    tail: bytearray = field(default_factory=bytearray)
    deeds: dict[str, list[float]] = field(default_factory=dict)  # what scripts did -> when
    faults: list[tuple[float, str]] = field(default_factory=list)
    told: dict[str, float] = field(default_factory=dict)  # host -> when it logged how the job ended

    def read(self, fd: int, each_time: Callable[[], None]) -> None:
        """Read the pipe `fd` until its end."""
        rest = b""
        while block := os.read(fd, 1 << 16):
            whole, newline, after = block.rpartition(b"\n")
            if newline:
                self._note(rest + whole + newline)
                rest = after
            else:
                rest = (rest + block)[-(1 << 17) :]  # no line this long is of interest
            each_time()
        self._note(rest)

    def _note(self, lines: bytes) -> None:
        now = time.time()
        for match in _DEED.finditer(lines):
            self.deeds.setdefault(match[1].decode(), []).append(float(match[2]))
        for match in _FAULT.finditer(lines):
            self.faults.append((now, match[0].decode(errors="replace")))
        for match in _TOLD.finditer(lines):
            self.told.setdefault(match[1].decode(), now)
        if len(self.head) < KEPT:
            self.head += lines
        else:
            self.tail = (self.tail + lines)[-KEPT:]

    @property
    def text(self) -> str:
        between = b"\n[...]\n" if self.tail else b""
        return (self.head + between + self.tail).decode(errors="replace")

    def not_done(self) -> list[str]:
        """Return the faults that did not happen."""
        return _NO_FAULT.findall(self.text)

    def exits(self) -> dict[str, str]:
        """Return the end of each host from the final table: an exit code, or a signal's name."""
        return dict(_EXIT.findall(self.text.rpartition("tail s\n")[2]))
