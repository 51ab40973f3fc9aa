"""Grade the findings of checks, rehearsals and reports on one scale."""

from enum import IntEnum


class Severity(IntEnum):
    """Grade a finding; the larger, the worse."""

    FINE = 0  # checked, and right
    NOTE = 1  # worth knowing, or not known
    WARNING = 2  # the job runs, but loses work, money, or what was meant
    ERROR = 3  # the job fails, or does not do what it is paid for

    def __str__(self) -> str:
        return self.name.lower()


BAD = (Severity.ERROR, Severity.WARNING, Severity.NOTE)  # the worst first
