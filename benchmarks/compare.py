"""Compare our figures with the peers', case by case: missed aims, cases in which a peer is better, and promises."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from benchmarks.figures import Figure, Ratio, Run, figure, ratio, short, times, title, where
from benchmarks.side_by_side.aims import AIMS, Aim, aim
from benchmarks.side_by_side.cases import (
    DRIVERS,
    FAILURE,
    HANG,
    HANG_AFTER_S,
    LOG,
    PACKAGES,
    REAL,
    START,
    STOP,
)

NAMES = {
    "ours": "ours", "ours-unwatched": "ours, without its monitor", "toolkit": "AWS toolkit",
    DRIVERS: "SDK 3's drivers", "mpirun": "mpirun by hand", "horovodrun": "horovodrun by hand",
    "horovodrun-gloo": "horovodrun-gloo by hand", "plain": "plain by hand",
}  # fmt: skip
PEERS = tuple(side for side in NAMES if not side.startswith("ours"))
MORE_IS_BETTER = ("lines_per_s",)
NEVER = ("told_s", "hang_told_s")  # what a side that ran without it did not come to, however long it ran
SECTIONS = {  # of a page, by group of cases: the heading, and what is shown and compared
    START: ("Start and tail", ("start_s", "tail_s", "launcher_memory_bytes", "launcher_cpu_s")),
    FAILURE: ("When something fails", ("gone_s",)),
    HANG: ("When a process hangs", ("hang_told_s", "gone_s")),
    STOP: ("When the job is stopped", ("told_s", "gone_s")),
    REAL: ("Real jobs", ("wall_s", "start_s", "tail_s", "launcher_tail_s")),
    LOG: ("The log", ("lines_per_s", "cpu_us_per_line", "split_share", "mislabelled_share", "unlabelled_share")),
    PACKAGES: ("Installs", ("install_s", "install_cpu_s", "gone_s")),
}


@dataclass(frozen=True)
class Compared:
    """One measure of one case, on our side and on a peer's."""

    case: str
    title: str
    measure: str
    ours: Figure
    theirs: Figure
    aim: Aim | None = None

    @property
    def ratio(self) -> Ratio | None:
        return ratio(self.ours, self.theirs)

    @property
    def met(self) -> bool | None:
        """Return whether the aim is met; None without an aim, or if the bound of a cut run cannot decide it."""
        return self.ratio.meets(self.aim.ratio) if self.ratio and self.aim else None

    @property
    def is_worse(self) -> bool:
        """Return whether the peer is better."""
        if self.ratio is None:  # a ratio to a share of 0 does not exist
            return self.measure.endswith("_share") and self.theirs.median == 0 and bool(self.ours.median)
        return self.ratio.value < 1 if self.measure in MORE_IS_BETTER else self.ratio.value > 1


def compared(runs: list[Run], peer: str) -> list[Compared]:
    """Return all comparisons with a peer, in the order of the cases. Only comparisons with the toolkit have aims."""
    found = []
    for case, (name, group) in {run["case"]: (run["title"], run["group"]) for run in runs}.items():
        of_case = where(runs, case=case)
        for measure in SECTIONS[group][1]:
            ours, theirs = (figure(of_case, measure, side=side) for side in ("ours", peer))
            if ours and theirs:
                goal = aim(case, measure) if peer == "toolkit" else None
                found.append(Compared(case, name, measure, ours, theirs, goal))
    return found


def judged(runs: list[Run]) -> Iterator[tuple[Aim, list[Ratio], list[Compared]]]:
    """Yield each measured aim with the ratios of its cases, least first, and the cases that miss it.

    A case is left out if the toolkit's job did not end, as there is no ratio.
    """
    of_toolkit = compared(runs, "toolkit")
    for aimed in AIMS:
        cases = [each for each in of_toolkit if each.aim is aimed and each.ratio]
        if cases:
            ratios = sorted((each.ratio for each in cases if each.ratio), key=lambda found: found.value)
            yield aimed, ratios, [each for each in cases if not each.met]


def losses(runs: list[Run]) -> list[list[str]]:
    """Return a line for each lost comparison or missed aim: measure, our figure, the peer's, the ratio.

    A start or a tail is a part of a job. Where the whole job was compared, too, its ratio follows.
    """
    lines = []
    for peer in ("toolkit", DRIVERS):
        both = compared(runs, peer)
        whole = {each.case: each.ratio for each in both if each.measure == "wall_s"}
        for each in both:
            if each.is_worse or each.met is False:
                goals = [f"aim: {each.aim.ratio:g}"] if each.aim and not each.is_worse else []
                goals += [f"whole job: {whole[each.case]}"] if each.case in whole and each.measure != "wall_s" else []
                goal = f" ({'; '.join(goals)})" if goals else ""
                figures = [short(found, each.measure) for found in (each.ours, each.theirs)]
                what = f"{title(each.measure).lower().replace('cpu', 'CPU')}, {each.title}"
                lines.append([what, figures[0], f"{figures[1]} ({NAMES[peer]})", f"{each.ratio or ''}{goal}"])
    return lines


# ---- what README promises -------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Promise:
    """A figure that README states. `cases` are patterns; if several cases match, our worst one gives the figure."""

    row: str  # in the tables
    quote: str = ""  # in README, outside of what is made; "" for the rows of README's own table
    says: str = "its table's row"  # the figure in the quote
    what: str = "side-by-side"
    measure: str = ""  # "": nothing measures it
    cases: str = ""
    most: float | None = None  # beyond this the promise is broken
    why: str = ""  # nothing measures it


SECONDS = 10.0  # the most that "seconds" are
EXIT = "Hosts exit a fraction of a second after the last script's process"
WITHIN = {"quote": "Failure within seconds", "says": "within seconds", "measure": "gone_s", "most": SECONDS}
FIRST = (  # the rows of README's own table
    Promise(row="start, to the script's first line", measure="start_s", cases="start-mpi-2x1"),
    Promise(row="a rank raises, until all hosts are gone", measure="gone_s", cases="raise-mpi-2-rank-0"),
    Promise(row="the first host is killed, until all hosts are gone", measure="gone_s", cases="kill-mpi-2-coordinator"),
)
PROMISES = (
    *FIRST,
    Promise(row="a script raises, until all hosts are gone", cases="raise-*", **WITHIN),
    Promise(row="a host is killed, until all others are gone", cases="kill-*", **WITHIN),
    Promise(
        row="a host's network is cut, until all hosts are gone", cases="cut-*",
        **(WITHIN | {"quote": "ends the whole job within seconds of the first failure"}),
    ),
    Promise(row="an install fails, until all hosts are gone", cases="install-*", **WITHIN),
    Promise(
        row="requirements of 110 packages are installed", quote="installs [in seconds", says="in seconds",
        what="installs", measure="install_s", cases="packages-110-*", most=3 * SECONDS,  # no minute, as with pip
    ),
    Promise(
        row="the last script ends, until all hosts are gone", quote=EXIT, says="a fraction of a second",
        measure="tail_s", cases="start-*", most=1.0,
    ),
    Promise(
        row="the last process of a job with TensorFlow ends, until all hosts are gone", quote=EXIT,
        says="a fraction of a second", measure="launcher_tail_s", cases="real-*", most=1.0,
    ),
    Promise(
        row=f"a process hangs, until the log shows where (of which `ENTRYPOINT_HANG_AFTER` is {HANG_AFTER_S} s)",
        quote="When a job [hangs](docs/monitoring.md#when-it-hangs)", says="", measure="hang_told_s", cases="hang-*",
    ),
    Promise(
        row="SIGTERM, until it has reached every script", quote="SIGTERM reaches every script and rank", says="",
        measure="told_s", cases="stop-*",
    ),
    Promise(
        row="`entrypoint rehearse` runs the job", quote="for a minute on simulated hosts", says="for a minute",
        why="a setting: `--seconds`, by default 60",
    ),
    Promise(
        row="`examples/run.sh`, the first time", quote="trains on two simulated hosts; about two minutes",
        says="about two minutes", why="most of it is a download",
    ),
    Promise(
        row="`tests/accept` on SageMaker", quote="for at most $1.38 in us-east-1", says="at most $1.38",
        why="never run on SageMaker",
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Found:
    """A promise with the figures of our worst case."""

    promise: Promise
    ours: Figure | None = None
    worst: str = ""  # that case in words, where there are several
    peer: str = ""
    theirs: Figure | None = None
    made: str = ""  # date and commit

    @property
    def is_broken(self) -> bool:
        """Return whether the figure exceeds that in README, or README has none."""
        if self.ours is None or self.promise.most is None:
            return False
        return self.ours.median is None or self.ours.median > self.promise.most

    @property
    def is_beaten(self) -> bool:
        found = ratio(self.ours, self.theirs)
        return found is not None and found.value > 1

    def cells(self) -> list[str]:
        promise = self.promise
        if self.ours is None:
            return [promise.row, promise.says, f"not measured{f' ({promise.why})' * bool(promise.why)}", "", "", ""]
        mine = short(self.ours, promise.measure)
        mine = f"**{mine}: not kept**" if self.is_broken else mine
        best = f"{short(self.theirs, promise.measure)} ({self.peer})" if self.theirs else self.peer
        factor = times(ratio(self.ours, self.theirs), promise.measure)
        return [promise.row, promise.says, mine + self.worst, best, factor, self.made]


def find(promise: Promise, records: Mapping[str, dict[str, Any]]) -> Found:
    """Return a promise with our worst case, and the best peer in that case."""
    record = records.get(promise.what)
    if record is None or not promise.measure:
        return Found(promise)
    runs: list[Run] = record["runs"]
    titles = {run["case"]: run["title"] for run in runs if fnmatchcase(run["case"], promise.cases)}
    ours = {case: each for case in titles if (each := figure(runs, promise.measure, case=case, side="ours"))}
    if not ours:
        return Found(promise)
    worst = max(ours, key=lambda case: _seconds(ours[case]))
    named = f" (worst of {len(ours)}: {titles[worst]})" if len(ours) > 1 else ""
    made = f"{record['date']}, `{record['commit']}`"
    peers = {side: each for side in PEERS if (each := figure(runs, promise.measure, case=worst, side=side))}
    if peers:
        best = min(peers, key=lambda side: _seconds(peers[side]))
        return Found(promise, ours[worst], named, NAMES[best], peers[best], made)
    ran = [NAMES[side] for side in PEERS if where(runs, case=worst, side=side)]
    never = f"never ({', '.join(ran)})" if ran and promise.measure in NEVER else "not measured"
    return Found(promise, ours[worst], named, never, None, made)


def _seconds(found: Figure) -> tuple[bool, float]:
    """Return a sort key for figures; jobs that did not end come last."""
    return found.median is None, found.median if found.median is not None else found.limit or 0.0
