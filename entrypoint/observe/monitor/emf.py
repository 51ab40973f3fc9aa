"""Write log lines in CloudWatch's embedded metric format, from which CloudWatch makes metrics. Pure.

https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html
"""

import json
import math
from collections.abc import Mapping

from entrypoint.record.lines import HostUse

EVERY_SECONDS = 60.0  # seconds: CloudWatch keeps a value a minute, and each metric costs
MOST = 90  # metrics in a line; the format allows 100
MOST_VALUE = 2.0**360  # CloudWatch's limit
_UNITS = {"CPUUtilization": "Percent", "GPUUtilization": "Percent", "MemoryUsed": "Bytes", "GPUMemoryUsed": "Bytes"}
OURS = {"_aws", "TrainingJobName", "Host", *_UNITS}  # names that a script's metric cannot use


class Emf:
    """Collect one host's use and metrics for the next line. `cpus`: CPUs that the host may use."""

    def __init__(self, namespace: str, job: str, host: str, cpus: float) -> None:
        self._namespace, self._cpus = namespace, cpus
        self._who = {**({"TrainingJobName": job} if job else {}), "Host": host}
        self._seconds = self._worked = 0.0
        self._busy: list[float] = []  # mean of the GPUs in each sample, from 0 to 1
        self._sizes: dict[str, float] = {}
        self._metrics: dict[str, float] = {}

    def note(self, seconds: float, used: HostUse) -> None:
        self._seconds += seconds
        self._worked += sum(used.get("cpu", ())[:2])
        if memory := used.get("memory"):
            self._sizes["MemoryUsed"] = memory[2]
        if gpus := used.get("gpus"):
            self._busy.append(sum(gpu[0] for gpu in gpus) / len(gpus))
            self._sizes["GPUMemoryUsed"] = sum(gpu[1] for gpu in gpus)

    def note_metrics(self, found: Mapping[str, float]) -> None:
        """Note the last values of a process's metrics. CloudWatch accepts neither NaN nor infinity."""
        self._metrics |= {
            name: value
            for name, value in found.items()
            if math.isfinite(value) and abs(value) < MOST_VALUE and name not in OURS
        }

    @property
    def is_due(self) -> bool:
        return self._seconds >= EVERY_SECONDS

    def take(self, at: float) -> str:
        """Return the line for `at` (seconds since the epoch) and reset; return "" if nothing was noted."""
        if not self._seconds:
            return ""
        values = {"CPUUtilization": round(100 * self._worked / self._seconds / self._cpus, 2), **self._sizes}
        if self._busy:
            values["GPUUtilization"] = round(100 * sum(self._busy) / len(self._busy), 2)
        values = dict([*values.items(), *self._metrics.items()][:MOST])
        directive = {
            "Namespace": self._namespace,
            "Dimensions": [list(self._who)],
            "Metrics": [{"Name": name, "Unit": _UNITS.get(name, "None")} for name in values],
        }
        self._seconds = self._worked = 0.0
        self._busy, self._metrics = [], {}
        return json.dumps(
            {"_aws": {"Timestamp": round(at * 1000), "CloudWatchMetrics": [directive]}, **self._who, **values}
        )
