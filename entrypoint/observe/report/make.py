"""Make the file of the report from records: read them, apply all rules, write the page."""

import gc
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from entrypoint.observe.report.content import content
from entrypoint.observe.report.ending import ending
from entrypoint.observe.report.html_page import line_of, render
from entrypoint.observe.report.job_record import JobRecord, gather
from entrypoint.observe.report.rules import resources, steps
from entrypoint.observe.report.rules.judging import Verdict, worst_first

Check = Callable[[JobRecord, float], Iterator[Verdict]]
_ALL: tuple[Check, ...] = (
    steps.apart, resources.input_bound, resources.cpu_starved, resources.gpu_starved, resources.memory, steps.straggler,
    resources.ps_unbalanced, steps.loss, steps.step_growth, steps.checkpoint, resources.disk, resources.network,
    resources.small_files, steps.idle,
)  # fmt: skip
CHECKS = {check.__name__: check for check in _ALL}  # a rule has the name of its function


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


def judge(job: JobRecord, thresholds: Mapping[str, float]) -> list[Verdict]:
    """Return the verdicts on a job, the worst first. A rule with an infinite threshold is off."""
    wanted = [(check, thresholds[name]) for name, check in CHECKS.items() if math.isfinite(thresholds[name])]
    return worst_first(verdict for check, threshold in wanted for verdict in check(job, threshold))
