"""Define a rule's verdict."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from entrypoint.base.severity import Severity


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Describe one problem of a job."""

    rule: str
    host: str  # empty if the whole job is meant
    process: str = ""
    text: str  # one sentence, with its figures
    advice: str  # what to do
    severity: Severity = Severity.WARNING
    weight: float = 1.0  # order among verdicts of one severity: larger is worse


def worst_first(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Return the worst verdict of each rule, sorted. Its text names the other hosts or processes with the problem."""
    ordered = sorted(verdicts, key=lambda verdict: (-verdict.severity, -verdict.weight))
    found: dict[str, Verdict] = {}
    others: dict[str, set[tuple[str, str]]] = {}
    for verdict in ordered:
        where = (verdict.host, verdict.process)
        if found.setdefault(verdict.rule, verdict) is not verdict:
            first = found[verdict.rule]
            if where != (first.host, first.process):
                others.setdefault(verdict.rule, set()).add(where)
    for rule, places in others.items():
        verdict = found[rule]
        names = sorted({host for host, _ in places if host != verdict.host})
        what = ", ".join(names[:3]) or f"{len(places)} more processes of this host"
        more = f" and {len(names) - 3} more hosts" if len(names) > 3 else ""
        found[rule] = replace(verdict, text=f"{verdict.text}; the same holds for {what}{more}")
    return list(found.values())
