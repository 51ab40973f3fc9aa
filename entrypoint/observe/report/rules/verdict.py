"""What a rule says, and the words that rules share."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from entrypoint.base.severity import Severity


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One ailment of a job."""

    rule: str
    host: str  # nothing if it is of the whole job
    process: str = ""
    text: str  # one sentence, with its figures
    advice: str  # what to do
    severity: Severity = Severity.WARNING
    weight: float = 1.0  # of those as severe, the larger is worse

    @property
    def line(self) -> str:
        """Return it as one line of a log."""
        where = " ".join(filter(None, [self.process, "on" if self.process and self.host else "", self.host]))
        return f"{self.rule}: {where + ': ' if where else ''}{self.text}; {self.advice}"


def worst_first(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Return them in order, of each rule the worst alone, which says of how many hosts or processes it is true, too."""
    ordered = sorted(verdicts, key=lambda verdict: (-verdict.severity, -verdict.weight))
    found: dict[str, Verdict] = {}
    others: dict[str, set[tuple[str, str]]] = {}
    for verdict in ordered:
        where = (verdict.host, verdict.process)
        if found.setdefault(verdict.rule, verdict) is not verdict:
            first = found[verdict.rule]
            if where != (first.host, first.process):
                others.setdefault(verdict.rule, set()).add(where)
    return [_and_of_others(verdict, others.get(name, set())) for name, verdict in found.items()]


def _and_of_others(verdict: Verdict, others: set[tuple[str, str]]) -> Verdict:
    if not others:
        return verdict
    names = sorted({host for host, _ in others if host != verdict.host})
    what = f"{', '.join(names[:3])}{f' and {len(names) - 3} more hosts' if len(names) > 3 else ''}" if names else ""
    what = what or f"{len(others)} more processes of this host"
    return replace(verdict, text=f"{verdict.text}; the same holds for {what}")


def percent(share: float) -> str:
    """Return a share in words."""
    return f"{100 * share:.0f} %"


def size(count: float) -> str:
    """Return bytes in words."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def duration(seconds: float) -> str:
    """Return a time in words."""
    if seconds < 1:
        return f"{1000 * seconds:.3g} ms"
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 7200 else f"{seconds / 3600:.3g} h"
