"""Apply all rules to one job."""

import math
from collections.abc import Callable, Iterator, Mapping

from entrypoint.observe.report.job import JobRecord
from entrypoint.observe.report.rules import inputs, resources, steps
from entrypoint.observe.report.rules.verdict import Verdict, worst_first

Check = Callable[[JobRecord, float], Iterator[Verdict]]
_ALL: tuple[Check, ...] = (
    steps.apart, inputs.input_bound, resources.cpu_starved, resources.gpu_starved, resources.memory, steps.straggler,
    resources.ps_unbalanced, steps.loss, steps.step_growth, steps.checkpoint, resources.disk, resources.network,
    inputs.small_files, steps.idle,
)  # fmt: skip
CHECKS = {check.__name__: check for check in _ALL}  # a rule has the name of its function


def judge(job: JobRecord, thresholds: Mapping[str, float]) -> list[Verdict]:
    """Return the verdicts on a job, the worst first. A rule with an infinite threshold is off."""
    wanted = [(check, thresholds[name]) for name, check in CHECKS.items() if math.isfinite(thresholds[name])]
    return worst_first(verdict for check, threshold in wanted for verdict in check(job, threshold))
