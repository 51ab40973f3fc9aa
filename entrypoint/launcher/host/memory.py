"""Detect, by our control group's counter, whether the kernel killed a process for lack of memory.

SIGKILL has many senders. `oom_kill` is in memory.events, or in memory.oom_control of version 1 since Linux 4.13.
"""

import re
from pathlib import Path

from entrypoint.launcher.host.cgroups import groups, read

_UNLIMITED_BYTES = 1 << 60  # bytes; version 1 writes "no limit" as a number of this size


class Meter:
    """Read the counter of our control group. Without one, nothing is ever reported."""

    def __init__(self, process: Path = Path("/proc/self")) -> None:
        folders = [group[0] for group in groups("memory", process)]
        self._folder = next((folder for folder in folders if _count(folder) is not None), None)
        self._seen = _count(self._folder) or 0

    def killed_since(self) -> str:
        """Return a line about what was killed since the last call; "" if nothing was, or there is no counter."""
        new = (_count(self._folder) or 0) - self._seen
        if self._folder is None or new <= 0:
            return ""
        self._seen += new
        limit = _megabytes(self._folder, "limit", "memory.max", "memory.limit_in_bytes")
        peak = _megabytes(self._folder, "peak", "memory.peak", "memory.max_usage_in_bytes")
        shown = f" ({', '.join([*limit, *peak])})" if limit or peak else ""
        return f"the kernel killed {new} process{'es' * (new > 1)} of this host for lack of memory{shown}"


def _count(folder: Path | None) -> int | None:
    text = read(folder, "memory.events", "memory.oom_control") if folder else ""
    found = re.search(r"^oom_kill (\d+)$", text, re.MULTILINE)
    return int(found[1]) if found else None


def _megabytes(folder: Path, what: str, *names: str) -> list[str]:
    size = read(folder, *names).strip()
    return [f"{int(size) / (1 << 20):,.0f} MiB {what}"] if size.isdecimal() and 0 < int(size) < _UNLIMITED_BYTES else []
