"""Measure the use by processes and their descendants since the last look, from the kernel's files."""

import array
import contextlib
import fcntl
import os
import termios
from collections.abc import Collection, Mapping
from stat import S_ISFIFO
from typing import Any

from entrypoint.observe.monitor.sockets import descriptors

SEARCH_AGAIN = 5  # looks until descendants are searched again, which lists all of /proc
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PIECE_BYTES = 1 << 14
_NONE: Mapping[int, int] = {}
_NAMES = ("cpu", "threads", "memory", "wait", "read", "written", "stored")  # of the figures, as a sample has them
_TIMES = {"cpu", "wait"}
_COUNTED = ("cpu", "wait", "read", "written", "stored")  # totals since the process began


class Differences:
    """Compute the growth of counters since their last values: 0 for a first value, and for a counter that was reset."""

    def __init__(self) -> None:
        self._last: dict[Any, float] = {}

    def __call__(self, key: Any, total: float) -> float:
        before = self._last.get(key, total)
        self._last[key] = total
        return max(0.0, total - before)


class ProcessUsage:
    """Measure the processes of the plan, each with its descendants: `processes` of a `SampleLine`."""

    def __init__(self) -> None:
        self._totals: dict[int, list[int]] = {}  # of the last look, by pid
        self._parents: dict[int, int] = {}
        self._looks, self._known = 0, frozenset[tuple[str, int]]()
        self.families: dict[str, list[int]] = {}  # of the last look: {name: its pid and those of its descendants}

    def look(self, processes: Mapping[str, int]) -> dict[str, dict[str, float]]:
        """Return the use by the processes ({name: pid}) and their descendants since the last look."""
        known = frozenset(processes.items())
        self._looks += 1
        if known != self._known or self._looks >= SEARCH_AGAIN:
            self._looks, self._known, self._parents = 0, known, parents(self._parents)
            self.families = families(processes, self._parents)
        found: dict[str, dict[str, float]] = {}
        before, self._totals = self._totals, {}
        for name, pids in self.families.items():
            sums = dict.fromkeys(_NAMES, 0)
            for pid in pids:
                with contextlib.suppress(OSError, ValueError, IndexError):  # the process is gone
                    threads, memory, totals = _of_process(pid)
                    self._totals[pid] = totals
                    sums["threads"] += threads
                    sums["memory"] += memory
                    for key, total, last in zip(_COUNTED, totals, before.get(pid, totals), strict=False):
                        sums[key] += max(0, total - last)
            found[name] = {
                key: round(value / _TICKS, 3) if key in _TIMES else value for key, value in sums.items() if value
            }
        return found


def parents(known: Mapping[int, int] = _NONE) -> dict[int, int]:
    """Return {pid: its parent's pid} of all processes. Of those in `known`, only orphans are read again."""
    pids = {int(entry) for entry in os.listdir("/proc") if entry.isdigit()}  # noqa: PTH208
    found = {pid: parent for pid, parent in known.items() if pid in pids and parent in pids}
    for pid in pids - found.keys():
        with contextlib.suppress(OSError, ValueError, IndexError):  # it has ended
            found[pid] = int(_stat(pid).split(None, 2)[1])
    return found


def families(processes: Mapping[str, int], parents: Mapping[int, int]) -> dict[str, list[int]]:
    """Return {name: pids of the process and its descendants}.

    A process belongs to its nearest ancestor in `processes`.
    """
    names = {pid: name for name, pid in processes.items()}
    found: dict[str, list[int]] = {name: [] for name in processes}
    for pid in sorted(parents):
        above = pid
        while above and above not in names:
            above = parents.get(above, 0)
        if above:
            found[names[above]].append(pid)
    return found


def _of_process(pid: int) -> tuple[int, int, list[int]]:
    """Return a process's threads, bytes of memory, and totals as in _COUNTED, its times in ticks.

    The totals lack the bytes if the process is another user's.
    """
    words = _stat(pid).split()
    totals = [int(words[11]) + int(words[12]), int(words[39])]  # the latter is delayacct_blkio_ticks
    with contextlib.suppress(OSError):
        io = contents(f"/proc/{pid}/io").split()
        totals += [int(io[1]), int(io[3]), int(io[9]) + int(io[11])]
    return int(words[17]), int(words[21]) * _PAGE, totals


def _stat(pid: int) -> bytes:
    """Return the fields that follow the program's name in /proc/PID/stat."""
    return contents(f"/proc/{pid}/stat").rpartition(b")")[2]


def contents(path: str) -> bytes:
    """Return the text of a kernel's file. pathlib and open() take longer for that than the kernel."""
    file = os.open(path, os.O_RDONLY)
    try:
        found = os.read(file, _PIECE_BYTES)
        while piece := os.read(file, _PIECE_BYTES):
            found += piece
        return found
    finally:
        os.close(file)


def fifos_filled(channels: Mapping[str, str], pids: Collection[int]) -> dict[str, list[int]]:
    """Return {channel: [bytes waiting in its pipe, its capacity]} of the pipes (name: path prefix) that `pids` read.

    A pipe is inspected only by the descriptor of its reader. Opening the FIFO ourselves would make us its first reader,
    for which the writer waits.
    """
    found = {}
    for _, descriptor, link in descriptors(pids if channels else ()):
        name = next((name for name, path in channels.items() if link.startswith(path)), None)
        with contextlib.suppress(OSError):
            if name and S_ISFIFO(os.stat(descriptor).st_mode):  # noqa: PTH116
                with open(os.open(descriptor, os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0) as pipe:
                    waiting = array.array("i", [0])
                    fcntl.ioctl(pipe, termios.FIONREAD, waiting)
                    found[name] = [waiting[0], fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ)]
    return found
