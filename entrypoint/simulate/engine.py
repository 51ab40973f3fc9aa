"""Define what an engine does: it runs hosts as processes, in namespaces, or as containers."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from entrypoint.base.errors import ConfigError
from entrypoint.base.python310 import StrEnum
from entrypoint.simulate.fault import Action, Fault
from entrypoint.simulate.tree import HostFolder


@dataclass(frozen=True, kw_only=True)
class Command:
    """Describe the child process that stands for one host: its output and its end are the host's."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]


class EngineName(StrEnum):
    PROCESS = "process"
    NETNS = "netns"
    DOCKER = "docker"


class Engine(Protocol):
    name: EngineName
    faults: frozenset[Action]
    """The faults that it can do."""
    look_again: float
    """Seconds between two looks for a process that a fault is about: what a look costs tells."""

    def check(self) -> None:
        """Raise ConfigError if this machine cannot run the job, with what is missing and what to do."""

    def plan(self, whole: bool) -> str:
        """Return the plan as text, with `whole` in full for any number of hosts. Leave nothing running."""

    def ready(self) -> AbstractContextManager[None]:
        """Set up what the hosts share for the time of the run, and remove it afterwards."""

    def command(self, folder: HostFolder) -> Command:
        """Return the command that starts one host."""

    def signal(self, running: Mapping[str, int], number: int) -> None:
        """Signal these hosts ({host: pid of its command}); a host that is gone is skipped."""

    def inject(self, fault: Fault, host: str, pid: int) -> bool:
        """Inject a fault into a running host (`pid`: its command's). Return False if the target does not exist yet.

        FaultFailed if it cannot be injected. Not called for faults that exist from the start.
        """

    def heal(self, fault: Fault, host: str, pid: int | None) -> None:
        """End a temporary fault; `pid` is None if the host is gone. FaultFailed if it cannot be ended."""


class FaultFailed(Exception):
    """Report in one line that a fault could not be injected or ended."""


def refuse_faults(faults: Sequence[Fault], engine: type[Engine], engines: Sequence[type[Engine]]) -> None:
    """Raise ConfigError for a fault that the engine cannot inject, with the names of engines that can."""
    for fault in faults:
        if fault.action not in engine.faults:
            able = " or ".join(f"--engine {other.name}" for other in engines if fault.action in other.faults)
            raise ConfigError(f"--fault '{fault}': engine {engine.name} cannot {fault.action}; wanted {able}")


def last_line(text: str | bytes, otherwise: str) -> str:
    """Return the last line of a failed tool's output that is not empty."""
    lines: Sequence[str] = (text.decode(errors="replace") if isinstance(text, bytes) else text).split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), otherwise)
