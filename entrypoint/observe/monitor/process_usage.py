"""Measure what processes and their descendants have used since the last look, from the kernel's files."""

import array
import contextlib
import fcntl
import os
import termios
from collections.abc import Collection, Mapping
from stat import S_ISFIFO
from typing import Any

from entrypoint.launcher.host.descendants import read_stat
from entrypoint.observe.monitor.sockets import descriptors

SEARCH_AGAIN = 5  # looks until descendants are searched again, which reads all of /proc
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_SIZES, _TIMES = {"memory", "threads"}, {"cpu", "wait"}


class Differences:
    """Compute by how much counters have grown: 0 for the first value, and for a counter that was reset."""

    def __init__(self) -> None:
        self._last: dict[Any, float] = {}

    def __call__(self, key: Any, total: float) -> float:
        before = self._last.get(key, total)
        self._last[key] = total
        return max(0.0, total - before)

    def forget(self, keep: Collection[Any]) -> None:
        """Forget all counters but those in `keep`."""
        self._last = {key: value for key, value in self._last.items() if key in keep}


class ProcessUsage:
    """Measure the processes of the plan, each with its descendants: `processes` of a `Sample` of record/lines.py."""

    def __init__(self) -> None:
        self._since = Differences()
        self._looks, self._known = 0, frozenset[tuple[str, int]]()
        self.families: dict[str, list[int]] = {}  # of the last look: {name: its pid and those of its descendants}

    def look(self, processes: Mapping[str, int]) -> dict[str, dict[str, float]]:
        """Return what the processes ({name: pid}) and their descendants have used since the last look."""
        known = frozenset(processes.items())
        self._looks += 1
        if known != self._known or self._looks >= SEARCH_AGAIN:
            self._looks, self._known, self.families = 0, known, families(processes)
        found, seen = {}, set()
        for name, pids in self.families.items():
            sums: dict[str, float] = {}
            for pid in pids:
                for key, value in _of_process(pid).items():
                    seen.add((pid, key))
                    amount = value if key in _SIZES else self._since((pid, key), value)
                    sums[key] = sums.get(key, 0) + amount
            found[name] = {
                key: round(value, 3) if key in _TIMES else int(value) for key, value in sums.items() if value
            }
        self._since.forget(seen)
        return found


def families(processes: Mapping[str, int]) -> dict[str, list[int]]:
    """Return {name: its pid and those of its descendants}; a process belongs to its nearest ancestor here."""
    names = {pid: name for name, pid in processes.items()}
    stats = [read_stat(entry) for entry in os.listdir("/proc") if entry.isdigit()]  # noqa: PTH208
    parents = {stat.pid: stat.parent for stat in stats if stat}
    found: dict[str, list[int]] = {name: [] for name in processes}
    for pid in parents:
        above = pid
        while above and above not in names:
            above = parents.get(above, 0)
        if above:
            found[names[above]].append(pid)
    return found


def _of_process(pid: int) -> dict[str, float]:
    """Return the totals of one process; {} if it is gone. psutil would take three times as long."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        words = _quickly(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        found = {
            "cpu": (int(words[11]) + int(words[12])) / _TICKS,
            "threads": int(words[17]),
            "memory": int(words[21]) * _PAGE,
            "wait": int(words[39]) / _TICKS,  # delayacct_blkio_ticks
        }
        with contextlib.suppress(OSError):  # the process is another user's
            numbers = [int(word) for word in _quickly(f"/proc/{pid}/io").split()[1::2]]
            found |= {"read": numbers[0], "written": numbers[1], "stored": numbers[4] + numbers[5]}
        return found
    return {}


def _quickly(path: str) -> bytes:
    """Read a small file. With many files, pathlib takes longer than the kernel."""
    with open(path, "rb", buffering=0) as file:
        return file.read(4096) or b""


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
