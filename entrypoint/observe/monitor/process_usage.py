"""Measure what processes and their descendants have used since the last look, from the kernel's files."""

import contextlib
import os
from collections.abc import Collection, Mapping

from entrypoint.observe.monitor.differences import Differences

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class ProcessUsage:
    """Measure the processes of the plan, each with its descendants: `processes` of a `Sample` of record/lines.py."""

    def __init__(self) -> None:
        self._since = Differences()

    def look(self, families: Mapping[str, Collection[int]]) -> dict[str, dict[str, float]]:
        """Return what the processes (pids) of each name have used since the last look."""
        found, seen = {}, set()
        for name, pids in families.items():
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


_SIZES, _TIMES = {"memory", "threads"}, {"cpu", "wait"}


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
