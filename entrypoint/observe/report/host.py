"""Define what the report knows of one host and its processes. Times are seconds since the job's begin."""

from dataclasses import dataclass, field
from typing import Any

from entrypoint.observe.report.columns import Columns, Series
from entrypoint.record import lines

SERVES, HELPS = {"ps"}, {"prepare", "key", "sshd", "mpirun"}


@dataclass
class Run:
    """Describe one start of a process and its end. Times are seconds since the job's begin."""

    start: float
    end: float | None = None
    how: str = ""  # how it ended, in words


@dataclass
class Mark:
    """Describe something that a script has timed: it ended at `at` and took `seconds`."""

    at: float
    what: str
    seconds: float


@dataclass
class Process:
    """Describe a process of the plan, or a rank."""

    name: str
    role: str = ""
    task: str = ""
    runs: list[Run] = field(default_factory=list)
    metrics: dict[str, Series] = field(default_factory=dict)
    marks: list[Mark] = field(default_factory=list)
    step_marks: Series = field(default_factory=Series)  # seconds per step
    first_output: float | None = None

    @property
    def trains(self) -> bool:
        """Return whether it is a program that trains: no server, helper or evaluator."""
        return self.role not in SERVES | HELPS | {"evaluator", ""}

    @property
    def steps(self) -> Series:
        """Return the steps that it has reported; empty if there are none."""
        return self.metrics.get("step") or self.metrics.get("epoch_step") or Series()

    def seconds_of(self, what: str) -> float:
        """Return the seconds that its marks of this kind took in all."""
        return sum(mark.seconds for mark in self.marks if mark.what == what)


@dataclass
class Host:
    """Hold the figures of one host's record. Times are seconds since the job's begin."""

    name: str
    columns: Columns
    about: lines.Host = field(default_factory=lines.Host)
    begin: float | None = None
    end: float = 0.0
    processes: dict[str, Process] = field(default_factory=dict)
    phases: list[tuple[float, str]] = field(default_factory=list)
    still: list[tuple[float, str, float, float]] = field(default_factory=list)  # (at, process, seconds, CPUs)
    stalled: list[float] = field(default_factory=list)  # when Horovod reported missing ranks
    logged: list[tuple[float, str]] = field(default_factory=list)
    stacks: list[dict[str, Any]] = field(default_factory=list)
    outcome: dict[str, Any] | None = None
    unused_gpus: str = ""  # why its TensorFlow cannot use its GPUs
    held_at_first: dict[str, float] = field(default_factory=dict)  # GPU -> used share of its memory in the first sample
    oom: int = 0
    exchanged: dict[str, list[float]] = field(default_factory=dict)  # other host -> bytes received, sent
    problems: list[str] = field(default_factory=list)
    every: int = 1  # one of so many samples was read

    @property
    def cpus(self) -> float:
        """Return the number of CPUs; 1 if it is not known."""
        return max(1.0, float(self.about.cpus or 0.0))

    @property
    def trainers(self) -> list[Process]:
        return [process for process in self.processes.values() if process.trains]
