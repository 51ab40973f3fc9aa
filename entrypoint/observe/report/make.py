"""Make the file of the report from records."""

import gc
from collections.abc import Mapping
from pathlib import Path

from entrypoint.observe.report.content import content
from entrypoint.observe.report.ending import ending
from entrypoint.observe.report.job import gather
from entrypoint.observe.report.render import line_of, render
from entrypoint.observe.report.rules.judge import judge


def make(
    records: Mapping[str, bytes],
    output: Path,
    price: float | None = None,
    rules: Mapping[str, float] | None = None,
    within: float = 0.0,
) -> list[str]:
    """Write the report of these records {host: bytes}; return the three worst verdicts, a line each.

    `price` (USD per host-hour) and `rules` (thresholds) replace the job's own; `within`: seconds in which the records
    should be read, 0 for no limit. OSError if the file cannot be written.
    """
    is_on = gc.isenabled()
    gc.disable()  # it would visit a million numbers repeatedly, and no cycles are made here
    try:
        job = gather(records, within)
        verdicts = judge(job, {**job.rules, **(rules or {})})
        page = content(job, verdicts, ending(job), job.price if price is None else price)
    finally:
        if is_on:
            gc.enable()
    scratch = output.with_name(f".{output.name}.new")
    try:
        scratch.write_text(render(page), encoding="utf-8")
        scratch.replace(output)
    finally:
        scratch.unlink(missing_ok=True)
    return [line_of(verdict) for verdict in page["verdicts"][:3]]
