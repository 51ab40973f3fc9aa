"""Write the hosts' output and our own messages to stdout; with --quiet, the hosts' states instead of their output."""

import errno
import os
import shutil
import sys
import threading
import time
from collections.abc import Mapping, Sequence

from entrypoint.base.errors import printable
from entrypoint.base.terminal import shown, width_of

REDRAW_SECONDS = 0.1  # seconds between two drawings
RUNS = "runs"


class Terminal:
    """Write whole lines of several threads to our stdout."""

    def __init__(self, environment: Mapping[str, str], fd: int = 1) -> None:
        self._environment, self._fd, self._lock = environment, fd, threading.RLock()
        self.full: OSError | None = None  # why some lines were not written

    def write(self, lines: bytes) -> None:
        view = memoryview(lines)
        try:
            with self._lock:
                while view:
                    view = view[os.write(self._fd, view) :]
        except OSError as error:  # without a reader of our stdout, or room for it, job and log files go on
            self.full = error if error.errno == errno.ENOSPC else self.full

    def print(self, message: str) -> None:
        text = shown(message, self._environment, width_of(sys.stdout))
        self.write(f"{text}\n".encode(errors="replace"))

    def output(self, host: str, lines: bytes) -> None:
        self.write(lines)

    def state(self, host: str, state: str) -> None:
        """Show a host's new state."""

    def tick(self) -> None:
        """Show how much time has passed."""


class Quiet(Terminal):
    """Print changes of hosts' states. On a terminal, draw a line for each host instead, with its last line of output.

    Messages appear above these lines.
    """

    def __init__(self, environment: Mapping[str, str], hosts: Sequence[str], fd: int = 1) -> None:
        super().__init__(environment, fd)
        self._states, self._began = dict.fromkeys(hosts, "waits"), time.monotonic()
        self._last: dict[str, str] = {}
        self._took: dict[str, float] = {}
        self._is_live, self._drawn, self._at = width_of(sys.stdout) > 0, 0, 0.0

    def write(self, lines: bytes) -> None:
        with self._lock:
            up = f"\x1b[{self._drawn}A\r\x1b[J".encode() if self._drawn else b""
            self._drawn = 0
            super().write(up + lines)

    def output(self, host: str, lines: bytes) -> None:
        last = lines.decode(errors="replace").strip().rpartition("\n")[2]
        self._last[host] = printable(last.removeprefix(f"[{host}] ").replace(f"[{host} ", "[", 1))
        if time.monotonic() > self._at + REDRAW_SECONDS:
            self.tick()

    def state(self, host: str, state: str) -> None:
        self._states[host] = state
        if state != RUNS:
            self._took[host] = time.monotonic() - self._began
        if self._is_live:
            self.tick()
        else:
            self.print(f"{host}: {state}")

    def tick(self) -> None:
        if not self._is_live:
            return
        with self._lock:
            self._at = time.monotonic()
            columns, lines = shutil.get_terminal_size()
            rows = [self._row(host) for host in self._states]
            if len(rows) > lines - 2:
                rows[lines - 3 :] = [f"and {len(rows) - lines + 3} more hosts"]
            text = "".join(f"{row[:columns]}\n" for row in rows)
            self.write(f"\x1b[?7l{text}\x1b[?7h".encode(errors="replace"))  # wide characters, too, do not wrap
            self._drawn = len(rows)

    def _row(self, host: str) -> str:
        width, seconds = max(map(len, self._states)), self._took.get(host, self._at - self._began)
        return f"{host:<{width}}  {self._states[host]:<13} {seconds:>5.0f} s  {self._last.get(host, '')}"
