"""Has the kernel killed for lack of memory? Its own counter says so, and nothing else does: SIGKILL has many senders.

The counter is our control group's: `oom_kill` in memory.events (version 2) or memory.oom_control (version 1, Linux 4.13
and later).
"""

from dataclasses import dataclass
from pathlib import Path

from entrypoint.host.cgroups import groups

_NO_LIMIT = 1 << 60  # bytes; version 1 says "no limit" as a number of this size


@dataclass(frozen=True, kw_only=True)
class Killed:
    """Processes were killed for lack of memory. Bytes; None where the kernel does not tell."""

    count: int
    limit: int | None
    peak: int | None

    def __str__(self) -> str:
        figures = [f"{_megabytes(size)} {what}" for size, what in ((self.limit, "limit"), (self.peak, "peak")) if size]
        shown = f" ({', '.join(figures)})" if figures else ""
        return f"the kernel killed {self.count} process{'es' * (self.count > 1)} of this host for lack of memory{shown}"


class Meter:
    """The counter of one control group, read when something has ended."""

    def __init__(self, folder: Path | None, version: int) -> None:
        self._folder, self._version = folder, version
        self._seen = self._count() or 0

    @property
    def tells(self) -> bool:
        """Whether there is a counter at all."""
        return self._count() is not None

    def killed_since(self) -> Killed | None:
        """Return what was killed since the last call; None if nothing was, or the kernel does not tell."""
        count = self._count()
        if count is None or count <= self._seen:
            return None
        new, self._seen = count - self._seen, count
        limit, peak = ("memory.max", "memory.peak")
        if self._version == 1:
            limit, peak = ("memory.limit_in_bytes", "memory.max_usage_in_bytes")
        size = self._number(limit)
        return Killed(count=new, limit=size if size and size < _NO_LIMIT else None, peak=self._number(peak))

    def _count(self) -> int | None:
        for line in self._read("memory.events" if self._version == 2 else "memory.oom_control").splitlines():
            key, _, value = line.partition(" ")
            if key == "oom_kill" and value.isdigit():
                return int(value)
        return None

    def _number(self, name: str) -> int | None:
        text = self._read(name).strip()
        return int(text) if text.isdigit() else None  # "max" is no limit

    def _read(self, name: str) -> str:
        try:
            return (self._folder / name).read_text() if self._folder else ""
        except OSError:
            return ""


def meter(process: Path = Path("/proc/self")) -> Meter:
    """Return the meter of our own control group; one that never tells anything, where there is none."""
    found = (Meter(group.folder, group.version) for group in groups("memory", process))
    return next((each for each in found if each.tells), Meter(None, 2))


def _megabytes(size: int) -> str:
    return f"{size / (1 << 20):,.0f} MiB"
