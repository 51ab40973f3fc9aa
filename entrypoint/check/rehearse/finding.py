"""Make the findings of a rehearsal, and decide by them: go or no-go."""

from collections.abc import Iterable

from entrypoint.base.severity import Severity
from entrypoint.check.finding import Finding


def fine(check: str, found: str) -> Finding:
    return Finding(check=check, severity=Severity.FINE, found=found)


def note(check: str, found: str, instead: str = "") -> Finding:
    return Finding(check=check, severity=Severity.NOTE, found=found, instead=instead)


def warning(check: str, found: str, instead: str) -> Finding:
    return Finding(check=check, severity=Severity.WARNING, found=found, instead=instead)


def error(check: str, found: str, instead: str) -> Finding:
    return Finding(check=check, severity=Severity.ERROR, found=found, instead=instead)


def goes(findings: Iterable[Finding]) -> bool:
    """Return whether it is a go: no error among them."""
    return all(finding.severity < Severity.ERROR for finding in findings)


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
