"""Define an engine, which runs hosts as processes, in namespaces or as containers, and the parts that engines share."""

import re
import signal
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from entrypoint.base.python310 import StrEnum
from entrypoint.simulate.fault import Action, Fault
from entrypoint.simulate.spec import LocalJob, settings_in
from entrypoint.simulate.tree import HostFolder, folders_of, shown

SIGNALS = {Action.KILL: signal.SIGKILL, Action.STOP: signal.SIGTERM, Action.PAUSE: signal.SIGSTOP}  # to processes

FILLER = ".full"
_HINT = re.compile(r"(Run|See) 'docker .*--help'")

# Shell commands for the folder {0}.
MOUNTS = {
    # Shrinks a file system in memory to its contents. Size 0 would mean no limit, so an empty one gets a filler.
    # Something may be written between the look and the remount, so there are several tries.
    Action.FILL: f"""
        for try in 1 2 3 4 5 6 7 8 9; do
            used=$(($(df -B1 --output=used {{0}} | tail -n 1)))
            if [ $used = 0 ]; then head -c $(getconf PAGESIZE) /dev/zero >{{0}}/{FILLER} && continue; fi
            mount -o remount,size=$used {{0}} && exit
        done
        exit 1
    """,
    # While a file is open for writing, the mount cannot be made read-only, so a read-only mount covers it. That file
    # stays open for writing; no other can be opened.
    Action.READONLY: """
        mount -o remount,bind,ro {0} 2>/dev/null || {{ mount --bind {0} {0} && mount -o remount,bind,ro {0}; }}
    """,
}


@dataclass(frozen=True, kw_only=True)
class HostCommand:
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
    runs_here: bool = True
    """Whether the processes of hosts descend from this one."""
    has_own_ml: bool = True
    """Whether each host has an /opt/ml of its own."""

    def __init__(self, job: LocalJob, environment: Mapping[str, str]) -> None:
        self.job = job
        self.settings = {**settings_in(environment), **dict(job.environment)}
        self.folders = {folder.host: folder for folder in folders_of(job)}
        small = {(f.host, f.folder) for f in job.faults if f.action is Action.FILL}
        self.small = [(host, part, self.folders[host].base / part) for host, part in sorted(small)]

    def mounts(self, folder: HostFolder) -> list[tuple[Path, str, bool]]:
        """Return the folders that are mounted in a host's /opt/ml: (folder, path there, whether it is read-only)."""
        channels = shown(self.job.channels, folder.parts)
        found = [(path, f"input/data/{name}", not self.job.notes_reads) for name, path in channels]
        return [*found, *([(self.job.checkpoints, "checkpoints", False)] if self.job.checkpoints else [])]

    @abstractmethod
    def check(self) -> None:
        """Raise ConfigError if this machine cannot run the job, with what is missing and what to do."""

    def notes(self) -> list[str]:
        """Return lines to print before the start."""
        return []

    @abstractmethod
    def plan(self, whole: bool) -> str:
        """Return the plan as text, with `whole` in full for any number of hosts. Leave nothing running."""

    @abstractmethod
    def ready(self) -> AbstractContextManager[None]:
        """Set up what the hosts share for the time of the run, and remove it afterwards."""

    @abstractmethod
    def command(self, folder: HostFolder) -> HostCommand:
        """Return the command that starts one host."""

    @abstractmethod
    def signal(self, running: Mapping[str, int], number: int) -> None:
        """Signal these hosts ({host: pid of its command}); a host that is gone is skipped."""

    @abstractmethod
    def inject(self, fault: Fault, host: str, pid: int) -> bool:
        """Inject a fault into a running host (`pid`: its command's). Return False if the target does not exist yet.

        Raise FaultFailed if it cannot be injected. Not called for faults that exist from the start.
        """

    @abstractmethod
    def heal(self, fault: Fault, host: str, pid: int | None) -> None:
        """End a temporary fault; `pid` is None if the host is gone. Raise FaultFailed if it cannot be ended."""


class FaultFailed(Exception):
    """Report in one line that a fault could not be injected or ended."""


def last_line(text: bytes, otherwise: str) -> str:
    """Return the last line of a failed tool's output that is not empty, and not docker's hint at its help."""
    lines = [line.strip() for line in text.decode(errors="replace").split("\n")]
    return next((line for line in reversed(lines) if line and not _HINT.match(line)), otherwise)


class HostsFiles:
    """Write one /etc/hosts for each host.

    It lists all hosts. A hidden host is commented out in all files but its own.
    """

    def __init__(self, job: LocalJob, addresses: Mapping[str, Sequence[str]]) -> None:
        self._addresses = addresses
        self._hidden = {fault.host for fault in job.faults if fault.action is Action.HIDE and fault.from_the_start}
        self._files: dict[str, tuple[Path, str]] = {}  # of each host, and its second name

    def write(self, owner: str, path: Path, own_name: str = "") -> None:
        """Write the file of one host; `own_name` is a second name of that host."""
        self._files[owner] = path, own_name
        path.write_text(self._text(owner))

    def hide(self, host: str, hidden: bool = True) -> None:
        """Hide a host from the others, or show it again.

        The files are mounted, so they are rewritten in place; as their lengths stay, no reader finds half of one.
        """
        self._hidden = self._hidden | {host} if hidden else self._hidden - {host}
        for owner, (path, _) in self._files.items():
            with path.open("r+") as file:
                file.write(self._text(owner))

    def _text(self, owner: str) -> str:
        lines = ["127.0.0.1 localhost", "::1 localhost"]
        for host, addresses in self._addresses.items():
            for address in addresses:
                line = f"{address} {host}"
                if host == owner:
                    line = f"{line} {self._files[owner][1]}".rstrip()
                elif host in self._hidden:
                    line = f"#{line[1:]}"
                lines.append(line)
        return "\n".join([*lines, ""])
