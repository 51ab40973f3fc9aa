"""Divide a job's start and end into phases, by the kernel's records of its processes. Pure.

Parallel work, on several hosts or within one, counts only with the time that it adds: a phase begins when all earlier
phases are over on every host, and lasts until the last host has ended it. It takes no time if that happened before.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from benchmarks.profile_start.kernel import Execution, Seen

Phase = tuple[str, float]


@dataclass(frozen=True)
class Host:
    """One container: its processes, PID 1 first, and the times of its scripts' first lines."""

    processes: list[Seen]
    first_lines: list[int]

    @property
    def began(self) -> int:
        """Return the time of exec of the container's first program. Earlier work of runc belongs to the engine."""
        return next(run.began for run in self.processes[0].executions if "runc" not in "".join(run.argv[:1]))

    @property
    def ended(self) -> int:
        return self.processes[0].ended or 0


def start(hosts: list[Host], marks: Iterable[tuple[str, str, str]]) -> list[Phase]:
    """Return (phase, seconds) from the last container's first program to the last script's first line.

    Each mark is (name of the phase that it ends, word of a command line, "exec", "first exec" of each host, or "exit").
    """
    found, until = _reached(hosts, max(host.began for host in hosts), marks)
    first_line = max(line for host in hosts for line in host.first_lines)
    return [*found, ("the script's Python, to its first line", (first_line - until) / 1e9)]


def end(hosts: list[Host], script: str, marks: Iterable[tuple[str, str, str]]) -> list[Phase]:
    """Return (phase, seconds) from the last script's end to that of the last container's first program."""
    until = max(at for host in hosts for at in _times(host, script, "exit"))
    found, until = _reached(hosts, until, marks)
    return [*found, ("to the end of PID 1", (max(host.ended for host in hosts) - until) / 1e9)]


def _reached(hosts: list[Host], until: int, marks: Iterable[tuple[str, str, str]]) -> tuple[list[Phase], int]:
    """Return the phases after a moment, each ended by a mark, and the end of the last one."""
    found = []
    for name, word, what in marks:
        reached = max([until, *(at for host in hosts for at in _times(host, word, what))])
        found.append((name, (reached - until) / 1e9))
        until = reached
    return found, until


def _times(host: Host, word: str, what: str) -> list[int]:
    if what != "exit":
        execs = [run.began for seen in host.processes for run in seen.executions if _is(run, word)]
        return execs[:1] if what == "first exec" else execs
    return [seen.ended for seen in host.processes if seen.ended and any(_is(run, word) for run in seen.executions)]


def _is(run: Execution, word: str) -> bool:
    return any(part == word or part.endswith("/" + word) for part in run.argv)
