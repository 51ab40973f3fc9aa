"""Compute the job's bill: host-seconds by phase, and money if a price is given."""

from dataclasses import dataclass

from entrypoint.observe.report.job import JobRecord
from entrypoint.observe.report.phases import IDLE, ORDER


@dataclass
class Bill:
    """Hold host-seconds by phase. `price`: USD per host-hour; None if it is not known."""

    phases: dict[str, float]  # sums of all hosts
    hosts: dict[str, dict[str, float]]
    price: float | None = None

    @property
    def total(self) -> float:
        return sum(self.phases.values())

    @property
    def idle(self) -> float:
        """Return the host-seconds in which hosts waited."""
        return sum(seconds for phase, seconds in self.phases.items() if phase in IDLE)


def bill_of(job: JobRecord, price: float | None = None) -> Bill:
    """Return the job's bill, with phases in the order of a job."""
    hosts: dict[str, dict[str, float]] = {}
    for host in job.hosts:
        sums = hosts[host.name] = dict.fromkeys(ORDER, 0.0)
        for span in job.spans[host.name]:
            sums[span.phase] += span.end - span.start
    phases = {phase: sum(sums[phase] for sums in hosts.values()) for phase in ORDER}
    return Bill({phase: seconds for phase, seconds in phases.items() if seconds > 0}, hosts, price)
