"""All that the checks look at: what was asked for, the samples, the runs. Values only."""

from dataclasses import dataclass
from typing import Any

from entrypoint.check.rehearse.results import Seen
from entrypoint.check.rehearse.sample import Sample


@dataclass(frozen=True, kw_only=True)
class Request:
    """What the checks want to know of a request."""

    title: str  # what runs, in one line
    mode: str
    meant_alone: bool = False  # ENTRYPOINT_MODE=single says that each host is to train alone
    hosts: int
    instance_types: tuple[str, ...]
    processes_per_host: int = 1
    keeps_checkpoints: bool = False
    spot: bool = False
    ours: bool = True  # whether our launcher is what the request starts
    moved: tuple[str, ...] = ()
    unmoved: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()  # where /opt/ml is written out
    same_epochs: bool = False  # epochs have a number of steps that is no matter of the data
    others: int = 0
    hyperparameters: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Case:
    """A rehearsal, as far as it has come."""

    request: Request
    environment: tuple[tuple[str, str], ...] = ()  # of the request
    engine: str
    hosts: int  # simulated
    seconds: float  # that were asked for
    samples: tuple[Sample, ...] = ()
    streamed: tuple[str, ...] = ()  # channels in Pipe mode
    runs: tuple[Seen, ...] = ()
    budget: float = 100.0  # seconds that scripts have to stop
    price: float | None = None  # USD for one host for an hour
    speedup: float | None = None  # how many times as fast the real job is

    def run(self, name: str) -> Seen | None:
        return next((run for run in self.runs if run.name == name), None)

    @property
    def plain(self) -> Seen | None:
        return self.run("plain")

    @property
    def stopped(self) -> Seen | None:
        """Return the run that was to be stopped in its middle: the plain one, if it had not ended by itself."""
        return self.run("stop") or (self.plain if self.plain and self.plain.ended.acted else None)


def figures(values: dict[str, Any]) -> str:
    """Return a few metrics in words."""
    shown = [f"{name} {value:.6g}" for name, value in values.items() if isinstance(value, (int, float))]
    return ", ".join(shown[:5])
