"""Hold the events and observations of a job as plain values, from a run or made by a test."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.chaos.case import Case, Fault


@dataclass(frozen=True, kw_only=True)
class Deed:
    """One entry of a script's journal: starts, lines, sigterm, saved, exits, raises, kills."""

    at: float
    host: str
    process: str
    attempt: int
    start: int  # which start of the process; several in an attempt if it was started again alone
    what: str
    words: str = ""


@dataclass(frozen=True, kw_only=True)
class Injected:
    """A fault that happened."""

    fault: Fault
    at: float
    over: float | None = None  # None: for good, or until the end


@dataclass(frozen=True, kw_only=True)
class Observed:
    """All observations of one job. Times are seconds since 1970."""

    case: Case
    began: float
    ended: bool  # by itself
    seconds: float
    exits: Mapping[str, str]  # host -> exit code or signal's name
    gone: Mapping[str, float]  # host -> when it was
    told: Mapping[str, float]  # host -> when it reported how the job ended
    failures: Mapping[str, str | None]  # host -> text of its failure file
    evidence: Mapping[str, str] = field(default_factory=dict)  # host -> text of its evidence file
    logs: Mapping[str, str]  # host -> all that it printed
    deeds: tuple[Deed, ...]
    injected: tuple[Injected, ...]
    left: tuple[str, ...] = ()
    gaps: tuple[tuple[float, float], ...] = ()  # (until, seconds) in which a CPU of the machine stood still
    waits: tuple[tuple[float, float], ...] = ()  # (until, seconds) for which one of the job's threads had no CPU
    pressure: float = 0.0  # seconds in which something waited for a disk
    slowness: float = 1.0  # how many times as long as at the speed of tests/budget.py the machine takes for work
    terminal: str = ""

    @property
    def stood_still(self) -> float:
        """Return the seconds in which the machine stood still."""
        return sum(seconds for _, seconds in self.gaps)


# As the summary of `entrypoint local` has them: over, for good, or on all hosts that were still there.
_FAULT = re.compile(
    r"^fault: (.*), (?:from ([\d.]+) s to ([\d.]+) s|after ([\d.]+) s(?:; the others ended before it reached them)?)$",
    re.MULTILINE,
)


def read_journals(folder: Path) -> tuple[Deed, ...]:
    """Return the entries of all journals, in order of time."""
    found = []
    starts: dict[tuple[str, str, str], int] = {}
    for path in sorted(folder.glob("*.journal"), key=lambda path: path.stem.split(",")[3]):
        host, process, attempt, _ = path.stem.split(",")
        number = starts[host, process, attempt] = starts.get((host, process, attempt), -1) + 1
        for line in path.read_text().splitlines():
            at, what, *words = line.split(" ")
            found.append(
                Deed(at=float(at), host=host, process=process.replace("=", "/"), attempt=int(attempt), start=number,
                     what=what, words=" ".join(words))
            )  # fmt: skip
    return tuple(sorted(found, key=lambda deed: deed.at))


def read_faults(case: Case, summary: str, began: float) -> tuple[Injected, ...]:
    """Return the faults in the summary of `entrypoint local`. `began`: the start of its first host."""
    found = []
    for text, begin, over, at in _FAULT.findall(summary):
        fault = next((fault for fault in case.faults if fault.text == text), None)
        if fault is not None:
            found.append(
                Injected(fault=fault, at=began + float(begin or at), over=began + float(over) if over else None)
            )
    return tuple(found)
