"""Describe a result of a check: severity, finding, advice, and its place in a file."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from entrypoint.base.severity import Severity
from entrypoint.usercode.source import Place


@dataclass(frozen=True)
class Finding:
    """Describe one result of a check of the doctor, or of a rehearsal."""

    severity: Severity
    check: str  # the doctor's names are in docs/rules.md
    found: str  # what is there, and its consequence
    instead: str = ""  # what to put there, or to do; "" if all is fine
    place: Place | None = None  # None in a rehearsal, which checks the whole job

    @property
    def order(self) -> tuple[int, str, int, str]:
        """Return the key for sorting: the worst first, then by place."""
        place = self.place or Place(file="")
        return -self.severity, place.file, place.line, self.check

    @property
    def value(self) -> dict[str, Any]:
        """Return the finding as JSON has it."""
        place = {"file": self.place.file, "line": self.place.line} if self.place else {}
        return {
            "check": self.check,
            "severity": str(self.severity),
            **place,
            "found": self.found,
            "instead": self.instead,
        }


fine = partial(Finding, Severity.FINE)
note = partial(Finding, Severity.NOTE)
warning = partial(Finding, Severity.WARNING)
error = partial(Finding, Severity.ERROR)


def counted(findings: Iterable[Finding], severities: Iterable[Severity]) -> str:
    """Return the number of findings of each severity, in words."""
    counts = Counter(each.severity for each in findings)
    return ", ".join(f"{counts[each]} {each}{'s' if counts[each] != 1 else ''}" for each in severities)


def goes(findings: Iterable[Finding]) -> bool:
    """Return whether a rehearsal's result is "go": its findings hold no error."""
    return all(finding.severity < Severity.ERROR for finding in findings)
