"""What an engine is: the difference between hosts that are processes and hosts that are containers."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from entrypoint.local.tree import HostFolder


@dataclass(frozen=True, kw_only=True)
class Command:
    """What stands for one host: a child of ours whose output is the host's and whose end is the host's."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]


class Engine(Protocol):
    def check(self) -> None:
        """Raises ConfigError if this machine cannot run the job: what is missing, and what to do."""

    def plan(self) -> str:
        """The plan of the run as text. Starts nothing that stays."""

    def ready(self) -> AbstractContextManager[None]:
        """Around the run: makes what hosts share, and leaves nothing of it behind."""

    def command(self, folder: HostFolder) -> Command:
        """How to start one host."""

    def signal(self, running: Mapping[str, int], number: int) -> None:
        """Signals hosts, given with the pids of their commands. Nothing happens to one that is gone."""


def last_line(text: str | bytes, otherwise: str) -> str:
    """What a failed tool said in the end."""
    lines: Sequence[str] = (text.decode(errors="replace") if isinstance(text, bytes) else text).split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), otherwise)
