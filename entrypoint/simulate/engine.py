"""Define what an engine does: run hosts as processes, in namespaces, or as containers."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from entrypoint.base.errors import ConfigError
from entrypoint.simulate.fault import Action, Fault
from entrypoint.simulate.tree import HostFolder


@dataclass(frozen=True, kw_only=True)
class Command:
    """The command of one host: a child process of ours, which has the host's output and ends with the host."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]


class Engine(Protocol):
    name: str
    faults: frozenset[Action]
    """The faults that it can do."""
    look_again: float
    """Seconds between two looks for a process that a fault is about: what a look costs tells."""

    def check(self) -> None:
        """Raise ConfigError if this machine cannot run the job; it names what is missing, and what to do."""

    def plan(self, whole: bool) -> str:
        """Return the plan as text; `whole` lists all hosts, however many. Nothing that it starts remains."""

    def ready(self) -> AbstractContextManager[None]:
        """Make what hosts share, and remove it after the run."""

    def command(self, folder: HostFolder) -> Command:
        """Return how to start one host."""

    def signal(self, running: Mapping[str, int], number: int) -> None:
        """Signal hosts, given with the pids of their commands. Hosts that are gone are skipped."""

    def inject(self, fault: Fault, host: str, pid: int) -> bool:
        """Inject a fault into a running host, given its command's pid. False if its process or folder is not there yet.

        FaultFailed if it cannot be done. Not called for faults that exist from the start.
        """

    def heal(self, fault: Fault, host: str, pid: int | None) -> None:
        """End a fault of limited length; `pid` is None if the host is gone. FaultFailed if that cannot be done."""


class FaultFailed(Exception):
    """A fault could not be injected, or not ended. One line."""


def refuse_faults(faults: Sequence[Fault], engine: type[Engine], engines: Sequence[type[Engine]]) -> None:
    """Raise ConfigError for a fault that the engine cannot do, naming those that can."""
    for fault in faults:
        if fault.action not in engine.faults:
            able = " or ".join(f"--engine {other.name}" for other in engines if fault.action in other.faults)
            raise ConfigError(f"--fault '{fault}': engine {engine.name} cannot {fault.action}; wanted {able}")


def last_line(text: str | bytes, otherwise: str) -> str:
    """Return the last line that a failed tool printed."""
    lines: Sequence[str] = (text.decode(errors="replace") if isinstance(text, bytes) else text).split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), otherwise)
