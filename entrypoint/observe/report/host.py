"""What is known of one host and its processes, from its record. Times are seconds since the job's begin."""

import math
from dataclasses import dataclass, field
from typing import Any

from entrypoint.observe.report.columns import Columns, Series

SERVES, HELPS = {"ps"}, {"prepare", "key", "sshd", "mpirun"}


@dataclass
class Run:
    """One time that a process was started. Times are seconds since the job's begin."""

    start: float
    end: float | None = None
    how: str = ""  # it ended


@dataclass
class Mark:
    """What a script has said of itself: something that ended at `at` and took so many seconds."""

    at: float
    what: str
    seconds: float


@dataclass
class Process:
    """A process of the plan, or a rank."""

    name: str
    role: str = ""
    task: str = ""
    runs: list[Run] = field(default_factory=list)
    metrics: dict[str, Series] = field(default_factory=dict)
    marks: list[Mark] = field(default_factory=list)
    step_marks: Series = field(default_factory=Series)  # seconds of a step
    first_output: float | None = None

    @property
    def trains(self) -> bool:
        """Whether it is the user's program that learns, and no server, helper or evaluator."""
        return self.role not in SERVES | HELPS | {"evaluator", ""}

    @property
    def steps(self) -> Series:
        """Return the steps that it said to have taken, if it did."""
        return self.metrics.get("step") or self.metrics.get("epoch_step") or Series()

    def seconds_of(self, what: str) -> float:
        """Return how long it was at that, by its marks."""
        return sum(mark.seconds for mark in self.marks if mark.what == what)


@dataclass
class Host:
    """What the record of one host tells. Times are seconds since the job's begin."""

    name: str
    columns: Columns
    rank: int = 0
    about: dict[str, Any] = field(default_factory=dict)
    begin: float | None = None
    end: float = 0.0
    processes: dict[str, Process] = field(default_factory=dict)
    phases: list[tuple[float, str]] = field(default_factory=list)
    still: list[tuple[float, str, float, float]] = field(default_factory=list)  # at, process, seconds, CPUs
    stalled: list[float] = field(default_factory=list)  # when Horovod said that a rank is missing
    said: list[tuple[float, str]] = field(default_factory=list)
    stacks: list[dict[str, Any]] = field(default_factory=list)
    outcome: dict[str, Any] | None = None
    unused_gpus: str = ""  # why its TensorFlow cannot use its GPUs
    held_at_first: dict[str, float] = field(default_factory=dict)  # GPU -> share of its memory, before any program
    oom: int = 0
    exchanged: dict[str, list[float]] = field(default_factory=dict)  # other host -> bytes received, sent
    problems: list[str] = field(default_factory=list)
    every: int = 1  # of so many samples one was read

    def figure(self, key: str) -> float:
        """Return a number of its `host` lines; 0 where it is not known."""
        value = self.about.get(key)
        return float(value) if isinstance(value, int | float) and math.isfinite(value) else 0.0

    @property
    def cpus(self) -> float:
        """Return how many there are; 1 where that is not known."""
        return max(1.0, self.figure("cpus"))

    @property
    def trainers(self) -> list[Process]:
        """Return its processes that train."""
        return [process for process in self.processes.values() if process.trains]
