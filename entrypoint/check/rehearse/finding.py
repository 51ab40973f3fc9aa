"""What a rehearsal finds: what was seen, how bad it is, what to do."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum


class Level(IntEnum):
    """How bad it is; the larger, the worse."""

    FINE = 0
    NOTE = 1  # worth knowing, or not known
    WARNING = 2  # the job runs, and loses work or money
    ERROR = 3  # the job fails, or does not do what it is paid for

    def __str__(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One line of the table."""

    check: str  # data, plan, shards, end, distributed, speed, memory, stop, kill, resume, hours, ...
    level: Level
    seen: str
    do: str = ""  # what to do; nothing where it is fine


def fine(check: str, seen: str) -> Finding:
    return Finding(check=check, level=Level.FINE, seen=seen)


def note(check: str, seen: str, do: str = "") -> Finding:
    return Finding(check=check, level=Level.NOTE, seen=seen, do=do)


def warning(check: str, seen: str, do: str) -> Finding:
    return Finding(check=check, level=Level.WARNING, seen=seen, do=do)


def error(check: str, seen: str, do: str) -> Finding:
    return Finding(check=check, level=Level.ERROR, seen=seen, do=do)


def goes(findings: Iterable[Finding]) -> bool:
    """Return whether it is a go: no error among them."""
    return all(finding.level < Level.ERROR for finding in findings)


def size(count: float) -> str:
    """Return bytes in words, as 1.5 GiB."""
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.3g} {unit}" if count % 1 and count < 999.5 else f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.3g} GiB"


def span(seconds: float) -> str:
    """Return a time in words."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
