"""Define a finding of the checks: its place, its severity, what is there and what to put there instead."""

from dataclasses import dataclass
from enum import IntEnum


class Severity(IntEnum):
    """Rank findings; the larger, the worse."""

    NOTE = 0  # worth knowing
    WARNING = 1  # the job runs, but loses work or does not do what was meant
    ERROR = 2  # the job fails, or does not train what was meant

    def __str__(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, kw_only=True)
class Place:
    """Name a line of a file; 0 means the file as a whole."""

    file: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Describe one problem that a check found."""

    check: str  # its name in lint/catalogue.py
    severity: Severity
    place: Place
    found: str  # what is there, and its consequence
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
