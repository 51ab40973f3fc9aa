"""Present a rehearsal as a table for people, and as JSON for programs."""

from typing import Any

from entrypoint.base.severity import Severity
from entrypoint.check.finding import Finding, counted, goes
from entrypoint.check.rehearse.subject import Case


def as_text(findings: list[Finding]) -> str:
    """Return a line for each finding, with advice below those that are not fine; then go or no-go."""
    lines = []
    width = max((len(each.check) for each in findings), default=0)
    for each in findings:
        lines.append(f"{each.severity!s:<8}{each.check:<{width}}  {each.found}")
        if each.instead:
            lines.append(f"{'':<{8 + width}}  do: {each.instead}")
    numbers = counted(findings, (Severity.ERROR, Severity.WARNING))
    return "\n".join([*lines, "", f"{'go' if goes(findings) else 'no-go'}: {numbers}"])


def as_json(case: Case, findings: list[Finding]) -> dict[str, Any]:
    """Return {"go", "findings": [{"check", "severity", "found", "instead"}], "runs", "samples", "hosts", "engine"}."""
    return {
        "go": goes(findings),
        "findings": [each.value for each in findings],
        "engine": case.engine,
        "hosts": case.hosts,
        "samples": [
            {
                "channel": sample.channel.name,
                "of": sample.where,
                "kind": sample.kind,
                "records": sample.records,
                "files": sample.files,
                "of_files": sample.of_files,
                "part": sample.part,
            }
            for sample in case.samples
        ],
        "runs": [
            {
                "name": run.name,
                "outcome": run.kind or "",
                "exit_code": run.ended.code,
                "failures": run.failures,
                "seconds": round(run.seconds, 3),
                "steps_per_second": run.rate_of("step"),
                "memory": {host.name: host.memory for host in run.hosts},
                "log": run.log,
            }
            for run in case.runs
        ],
    }
