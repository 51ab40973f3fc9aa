"""Define a finding of a rehearsal: level, observation, advice."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum


class Level(IntEnum):
    """Name how bad a finding is; a larger value is worse."""

    FINE = 0
    NOTE = 1  # information, or a fact that could not be found out
    WARNING = 2  # the job runs, but may lose work or money
    ERROR = 3  # the job fails, or does not do its work

    def __str__(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Describe one line of the table."""

    check: str  # data, plan, shards, end, distributed, speed, memory, stop, kill, resume, hours, ...
    level: Level
    seen: str
    do: str = ""  # advice; empty if all is fine


def fine(check: str, seen: str) -> Finding:
    return Finding(check=check, level=Level.FINE, seen=seen)


def note(check: str, seen: str, do: str = "") -> Finding:
    return Finding(check=check, level=Level.NOTE, seen=seen, do=do)


def warning(check: str, seen: str, do: str) -> Finding:
    return Finding(check=check, level=Level.WARNING, seen=seen, do=do)


def error(check: str, seen: str, do: str) -> Finding:
    return Finding(check=check, level=Level.ERROR, seen=seen, do=do)


def goes(findings: Iterable[Finding]) -> bool:
    """Return whether the verdict is "go": there is no error."""
    return all(finding.level < Level.ERROR for finding in findings)


def size(count: float) -> str:
    """Format a number of bytes, for example as 1.5 GiB."""
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.3g} {unit}" if count % 1 and count < 999.5 else f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.3g} GiB"


def span(seconds: float) -> str:
    """Format a duration in seconds."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
