"""What is found: in which file and line, what is there, what to put there, and how bad it is."""

from dataclasses import dataclass
from enum import IntEnum


class Severity(IntEnum):
    """How bad a finding is; the larger, the worse."""

    NOTE = 0  # worth knowing
    WARNING = 1  # the job runs, and does not do what was meant, or loses work
    ERROR = 2  # the job fails, or trains nothing that was meant

    def __str__(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, kw_only=True)
class Place:
    """A line of a file; 0: the file as a whole."""

    file: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that is amiss."""

    check: str  # its name in checks.CHECKS
    severity: Severity
    place: Place
    found: str  # what is there, and what comes of it
    instead: str  # what to put there

    @property
    def order(self) -> tuple[int, str, int, str]:
        return -self.severity, self.place.file, self.place.line, self.check


def note(check: str, place: Place, found: str, instead: str) -> Finding:
    return Finding(check=check, severity=Severity.NOTE, place=place, found=found, instead=instead)


def warning(check: str, place: Place, found: str, instead: str) -> Finding:
    return Finding(check=check, severity=Severity.WARNING, place=place, found=found, instead=instead)


def error(check: str, place: Place, found: str, instead: str) -> Finding:
    return Finding(check=check, severity=Severity.ERROR, place=place, found=found, instead=instead)
