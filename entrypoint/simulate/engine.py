"""Define what an engine does: it runs hosts as processes, in namespaces, or as containers."""

import signal
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from entrypoint.base.python310 import StrEnum
from entrypoint.simulate.fault import Action, Fault
from entrypoint.simulate.spec import LocalJob, settings_in
from entrypoint.simulate.tree import HostFolder, folders_of

SIGNALS = {Action.KILL: signal.SIGKILL, Action.STOP: signal.SIGTERM, Action.PAUSE: signal.SIGSTOP}  # to processes


@dataclass(frozen=True, kw_only=True)
class Command:
    """Describe the child process that stands for one host: its output and its end are the host's."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]


class EngineName(StrEnum):
    PROCESS = "process"
    NETNS = "netns"
    DOCKER = "docker"


class Engine(ABC):
    """Run the hosts of one job, in the given environment."""

    name: EngineName
    faults: frozenset[Action]
    """The faults that it can do."""
    look_again: float
    """Seconds between two looks for a process that a fault is about: what a look costs tells."""

    def __init__(self, job: LocalJob, environment: Mapping[str, str]) -> None:
        self.job = job
        self.settings = {**settings_in(environment), **dict(job.environment)}
        self.folders = {folder.host: folder for folder in folders_of(job)}
        small = {(f.host, f.folder) for f in job.faults if f.action is Action.FILL}
        self.small = [(host, part, self.folders[host].base / part) for host, part in sorted(small)]

    @abstractmethod
    def check(self) -> None:
        """Raise ConfigError if this machine cannot run the job, with what is missing and what to do."""

    @abstractmethod
    def plan(self, whole: bool) -> str:
        """Return the plan as text, with `whole` in full for any number of hosts. Leave nothing running."""

    @abstractmethod
    def ready(self) -> AbstractContextManager[None]:
        """Set up what the hosts share for the time of the run, and remove it afterwards."""

    @abstractmethod
    def command(self, folder: HostFolder) -> Command:
        """Return the command that starts one host."""

    @abstractmethod
    def signal(self, running: Mapping[str, int], number: int) -> None:
        """Signal these hosts ({host: pid of its command}); a host that is gone is skipped."""

    @abstractmethod
    def inject(self, fault: Fault, host: str, pid: int) -> bool:
        """Inject a fault into a running host (`pid`: its command's). Return False if the target does not exist yet.

        FaultFailed if it cannot be injected. Not called for faults that exist from the start.
        """

    @abstractmethod
    def heal(self, fault: Fault, host: str, pid: int | None) -> None:
        """End a temporary fault; `pid` is None if the host is gone. FaultFailed if it cannot be ended."""


class FaultFailed(Exception):
    """Report in one line that a fault could not be injected or ended."""


def last_line(text: str | bytes, otherwise: str) -> str:
    """Return the last line of a failed tool's output that is not empty."""
    lines: Sequence[str] = (text.decode(errors="replace") if isinstance(text, bytes) else text).split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), otherwise)
