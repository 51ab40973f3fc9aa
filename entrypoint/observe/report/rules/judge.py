"""Apply all rules to one job."""

import math
from collections.abc import Callable, Iterator, Mapping

from entrypoint.observe.report.job import JobRecord
from entrypoint.observe.report.rules import ends, inputs, resources, servers, steps
from entrypoint.observe.report.rules.verdict import Verdict, worst_first

Check = Callable[[JobRecord, float], Iterator[Verdict]]
CHECKS: dict[str, Check] = {
    "input_bound": inputs.input_bound,
    "cpu_starved": resources.cpu_starved,
    "gpu_starved": resources.gpu_starved,
    "memory": resources.memory,
    "straggler": steps.straggler,
    "ps_unbalanced": servers.ps_unbalanced,
    "loss": steps.loss,
    "step_growth": steps.step_growth,
    "checkpoint": ends.checkpoint,
    "disk": resources.disk,
    "network": servers.network,
    "small_files": inputs.small_files,
    "idle": ends.idle,
}


def judge(job: JobRecord, thresholds: Mapping[str, float]) -> list[Verdict]:
    """Return the verdicts on a job, the worst first. A rule with an infinite threshold is off."""
    wanted = [(check, thresholds[name]) for name, check in CHECKS.items() if math.isfinite(thresholds[name])]
    return worst_first(verdict for check, threshold in wanted for verdict in check(job, threshold))
