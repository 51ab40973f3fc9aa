"""Define the values that the checks read: the request, the samples, the runs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from entrypoint.check.rehearse.results import RunName, Seen
from entrypoint.check.rehearse.sample import Sample
from entrypoint.launcher.job.job import Mode
from entrypoint.simulate.local_channels import ChannelMode


@dataclass(frozen=True, kw_only=True)
class Request:
    """Describe a request as far as the checks need it."""

    title: str  # one line on what runs
    mode: Mode
    meant_alone: bool = False  # ENTRYPOINT_MODE=single: each host shall train alone
    hosts: int
    instance_types: tuple[str, ...]
    processes_per_host: int = 1
    keeps_checkpoints: bool = False
    spot: bool = False
    ours: bool = True  # whether the request starts our launcher
    moved: tuple[str, ...] = ()
    unmoved: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()  # places with a literal /opt/ml
    same_epochs: bool = False  # the number of steps in an epoch does not depend on the data
    others: int = 0
    hyperparameters: Mapping[str, str] = field(default_factory=dict)  # JSON in strings
    environment: Mapping[str, str] = field(default_factory=dict)
    stop_grace: float = 100.0  # seconds for scripts to stop


@dataclass(frozen=True, kw_only=True)
class Case:
    """Describe a rehearsal with the runs that it has made so far."""

    request: Request
    engine: str
    hosts: int  # number of simulated hosts
    own_ml: bool = True  # whether each has an /opt/ml of its own
    samples: tuple[Sample, ...] = ()
    runs: tuple[Seen, ...] = ()  # the plain one first
    price: float | None = None  # USD per host-hour
    speedup: float | None = None  # speed of the real job divided by that of the rehearsal

    @property
    def streamed(self) -> tuple[str, ...]:
        """Return the channels in Pipe mode."""
        return tuple(each.channel.name for each in self.samples if each.channel.mode is ChannelMode.PIPE)

    def run(self, name: RunName) -> Seen | None:
        return next((run for run in self.runs if run.name is name), None)

    @property
    def plain(self) -> Seen:
        return self.runs[0]

    @property
    def stopped(self) -> Seen | None:
        """Return the run that was stopped midway: STOP, or the plain run if it did not end by itself."""
        return self.run(RunName.STOP) or (self.plain if self.plain.ended.acted else None)


def figures(values: dict[str, Any]) -> str:
    """Describe up to five metrics."""
    shown = [f"{name} {value:.6g}" for name, value in values.items() if isinstance(value, (int, float))]
    return ", ".join(shown[:5])
