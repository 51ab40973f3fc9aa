"""What an engine is: the difference between hosts that are processes, network namespaces, or containers."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from entrypoint.base.errors import ConfigError
from entrypoint.simulate.fault import Action, Fault
from entrypoint.simulate.tree import HostFolder


@dataclass(frozen=True, kw_only=True)
class Command:
    """What stands for one host: a child of ours whose output is the host's and whose end is the host's."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]


class Engine(Protocol):
    name: str
    faults: frozenset[Action]
    """The faults that it can do."""
    look_again: float
    """Seconds between two looks for a process that a fault is about: what a look costs tells."""

    def check(self) -> None:
        """Raise ConfigError if this machine cannot run the job: what is missing, and what to do."""

    def plan(self, whole: bool) -> str:
        """Return the plan of the run as text, `whole` however many hosts there are. Starts nothing that stays."""

    def ready(self) -> AbstractContextManager[None]:
        """Make what hosts share, around the run, and leave nothing of it behind."""

    def command(self, folder: HostFolder) -> Command:
        """Return how to start one host."""

    def signal(self, running: Mapping[str, int], number: int) -> None:
        """Signal hosts, given with the pids of their commands. Nothing happens to one that is gone."""

    def inject(self, fault: Fault, host: str, pid: int) -> bool:
        """Do a fault to a running host, given with its command's pid. False: what it is about is not there yet.

        FaultFailed if it cannot be done. Not called for faults that there are from the start.
        """

    def heal(self, fault: Fault, host: str, pid: int | None) -> None:
        """End a fault that lasted some time; `pid` is None if the host is gone. FaultFailed if that cannot be done."""


class FaultFailed(Exception):
    """A fault could not be injected, or not ended. One line."""


def refuse_faults(faults: Sequence[Fault], engine: type[Engine], engines: Sequence[type[Engine]]) -> None:
    """Raise ConfigError for a fault that the engine cannot do, naming those that can."""
    for fault in faults:
        if fault.action not in engine.faults:
            able = " or ".join(f"--engine {other.name}" for other in engines if fault.action in other.faults)
            raise ConfigError(f"--fault '{fault}': engine {engine.name} cannot {fault.action}; wanted {able}")


def last_line(text: str | bytes, otherwise: str) -> str:
    """Return what a failed tool said in the end."""
    lines: Sequence[str] = (text.decode(errors="replace") if isinstance(text, bytes) else text).split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), otherwise)
