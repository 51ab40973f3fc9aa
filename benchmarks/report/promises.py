"""List what README promises with a figure, and fill the table of promises: measured, the best peer, the ratio."""

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from benchmarks.report import words
from benchmarks.report.figures import Measured, Run, measured, ratio, where
from benchmarks.side_by_side.cases import BY_HAND, DRIVERS, HANG_AFTER_S

PEERS = {"toolkit": "AWS toolkit", DRIVERS: "SDK 3's drivers", **{side: f"{side} by hand" for side in BY_HAND}}


@dataclass(frozen=True, kw_only=True)
class Promise:
    """What README states. `cases` are patterns; of several cases, the figure is that of our worst."""

    row: str  # in the tables
    quote: str  # in README, outside of what is made; "" for the rows of README's own table
    says: str = ""  # the figure in the quote
    what: str = "side-by-side"
    measure: str = ""  # "": nothing measures it
    cases: tuple[str, ...] = ()
    most: float | None = None  # beyond this the promise is broken
    why: str = ""  # nothing measures it

    @property
    def key(self) -> tuple[str, str]:
        """Return the case and the measure of a promise with one case."""
        return self.cases[0], self.measure


FAILURE = "Failure within seconds"
SECONDS = 10.0  # the most that "seconds" are
ROW = "its table's row"
EXIT = "Hosts exit a fraction of a second after the last script's process"

FIRST = (  # the rows of README's own table
    Promise(row="start, to the script's first line", quote="", says=ROW, measure="start_s", cases=("start-mpi-2x1",)),
    Promise(
        row="a rank raises, until all hosts are gone", quote="", says=ROW, measure="gone_s",
        cases=("raise-mpi-2-rank-0",),
    ),
    Promise(
        row="the first host is killed, until all hosts are gone", quote="", says=ROW, measure="gone_s",
        cases=("kill-mpi-2-coordinator",),
    ),
)  # fmt: skip
PROMISES = (
    *FIRST,
    Promise(
        row="a script raises, until all hosts are gone", quote=FAILURE, says="within seconds", measure="gone_s",
        cases=("raise-*",), most=SECONDS,
    ),
    Promise(
        row="a host is killed, until all others are gone", quote=FAILURE, says="within seconds", measure="gone_s",
        cases=("kill-*",), most=SECONDS,
    ),
    Promise(
        row="a host's network is cut, until all hosts are gone",
        quote="ends the whole job within seconds of the first failure", says="within seconds", measure="gone_s",
        cases=("cut-*",), most=SECONDS,
    ),
    Promise(
        row="an install fails, until all hosts are gone", quote=FAILURE, says="within seconds", measure="gone_s",
        cases=("install-*",), most=SECONDS,
    ),
    Promise(
        row="requirements of 110 packages are installed", quote="installs [in seconds", says="in seconds",
        what="installs", measure="install_s", cases=("packages-110-*",), most=3 * SECONDS,  # no minute, as with pip
    ),
    Promise(
        row="the last script ends, until all hosts are gone", quote=EXIT, says="a fraction of a second",
        measure="tail_s", cases=("start-*",), most=1.0,
    ),
    Promise(
        row="the last process of a job with TensorFlow ends, until all hosts are gone", quote=EXIT,
        says="a fraction of a second", measure="launcher_tail_s", cases=("real-*",), most=1.0,
    ),
    Promise(
        row=f"a process hangs, until the log shows where (of which `ENTRYPOINT_HANG_AFTER` is {HANG_AFTER_S} s)",
        quote="When a job [hangs](docs/monitoring.md#when-it-hangs)", measure="hang_told_s", cases=("hang-*",),
    ),
    Promise(
        row="SIGTERM, until it has reached every script", quote="SIGTERM reaches every script and rank",
        measure="told_s", cases=("stop-*",),
    ),
    Promise(
        row="`entrypoint rehearse` runs the job", quote="for a minute on simulated hosts", says="for a minute",
        why="a setting: `--seconds`, by default 60",
    ),
    Promise(
        row="`entrypoint accept` on SageMaker", quote="for at most $1.38 in us-east-1", says="at most $1.38",
        why="never run on SageMaker",
    ),
)  # fmt: skip
HEADLINES = (  # the rows of the comparison with AWS's toolkit, with case and measure; a loss is left out
    ("start-single-1", "start_s", "start, single host"),
    ("start-mpi-2x1", "start_s", "start, MPI, 2 hosts"),
    ("start-mpi-2x1", "tail_s", "tail, MPI, 2 hosts"),
    ("raise-mpi-2-rank-0", "gone_s", "MPI: a rank raises, until all hosts are gone"),
    ("raise-ps-2-worker", "gone_s", "parameter servers: a worker raises, until all hosts are gone"),
    ("kill-mpi-2-coordinator", "gone_s", "MPI: the first host is killed, until all hosts are gone"),
    ("start-mpi-2x1", "launcher_memory_bytes", "memory of the launcher, MPI, 2 hosts"),
)
NEVER = ("told_s", "hang_told_s", "resumed_s")  # a side without a figure never came to it
HEADS = ("README promises", "it says", "this image", "best peer", "this image is", "measured")


@dataclass(frozen=True)
class Found:
    """What was measured of a promise, in the case in which ours is worst. `of`: how many cases there are."""

    promise: Promise
    ours: Measured | None = None
    title: str = ""
    of: int = 0
    peer: str = ""
    theirs: Measured | None = None
    made: str = ""  # date and commit
    ran: tuple[str, ...] = ()  # peers that ran the case

    @property
    def kept(self) -> bool | None:
        """Return whether the figure is within what README says. None: README gives no limit, or nothing is known."""
        if self.ours is None or self.promise.most is None:
            return None
        return self.ours.median is not None and self.ours.median <= self.promise.most

    @property
    def loses(self) -> bool:
        found = ratio(self.ours, self.theirs)
        return found is not None and found.value > 1

    def cells(self) -> list[str]:
        promise, measure = self.promise, self.promise.measure
        if self.ours is None:
            reason = f" ({promise.why})" if promise.why else ""
            return [promise.row, promise.says, f"not measured{reason}", "", "", ""]
        mine = f"{words.short(self.ours, measure)} {words.unit(measure)}"
        mine = f"**{mine}: not kept**" if self.kept is False else mine
        mine += f" (worst of {self.of}: {self.title})" if self.of > 1 else ""
        times = words.times(ratio(self.ours, self.theirs), measure)
        return [promise.row, promise.says, mine, self._best(), times, self.made]

    def _best(self) -> str:
        measure = self.promise.measure
        if self.theirs:
            return f"{words.short(self.theirs, measure)} {words.unit(measure)} ({self.peer})"
        if self.ran and measure in NEVER:
            return f"never ({', '.join(self.ran)})"
        return "not measured"


def find(promise: Promise, records: Mapping[str, dict[str, Any]]) -> Found:
    """Return our worst case of a promise, and the best peer in the same case."""
    record = records.get(promise.what)
    if record is None or not promise.measure:
        return Found(promise)
    runs: list[Run] = record["runs"]
    titles = {
        run["case"]: run["title"] for run in runs if any(fnmatchcase(run["case"], each) for each in promise.cases)
    }
    ours = {case: each for case in titles if (each := measured(runs, promise.measure, case=case, side="ours"))}
    if not ours:
        return Found(promise)
    worst = max(ours, key=lambda case: _seconds(ours[case]))
    peers = {side: each for side in PEERS if (each := measured(runs, promise.measure, case=worst, side=side))}
    best = min(peers, key=lambda side: _seconds(peers[side]), default="")
    made = f"{record['date']}, `{record['commit']}`"
    ran = tuple(name for side, name in PEERS.items() if where(runs, case=worst, side=side))
    return Found(promise, ours[worst], titles[worst], len(ours), PEERS.get(best, ""), peers.get(best), made, ran)


def _seconds(figure: Measured) -> tuple[bool, float]:
    """Return a key that orders figures; those of jobs that did not end come last."""
    return figure.median is None, figure.median if figure.median is not None else figure.limit or 0.0


def context(records: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Return what the template of the first page takes: the table, and how many promises are not met or not known."""
    found = [find(promise, records) for promise in PROMISES]
    return {
        "heads": HEADS,
        "lines": [each.cells() for each in found],
        "unknown": sum(each.ours is None for each in found),
        "broken": sum(each.kept is False for each in found),
        "beaten": sum(each.loses for each in found),
    }
