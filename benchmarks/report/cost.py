"""What a job costs beside its script: the host-seconds in which the hosts of a job are paid for and no script runs.

    idle = hosts x (start + (1 - failed share) x tail + failed share x gone)

The page in docs/benchmarks is made with the assumptions below; for others, printed:

    python -m benchmarks.report.cost --jobs-per-day 500 --failed-share 0.1 --hosts 4 32 --price 1.5
"""

import argparse
import statistics
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.report import words
from benchmarks.report.figures import BadRecord, Measured, measured, read
from benchmarks.report.many_hosts import by_hosts
from benchmarks.report.side_by_side import Row

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "benchmarks"
MODES = {
    "single": "no distribution, 1 host",
    "plain": "no distribution",
    "ps": "parameter servers",
    "mwms": "MultiWorkerMirrored",
    "mpi": "MPI, Horovod",
}
SIDES = ("ours", "toolkit")
YEAR = 365  # days
INTRODUCTION = """
While a job starts and ends, its hosts are paid for and no script runs. From the medians of
[side-by-side.md](side-by-side.md), measured on {date} at commit `{commit}`:
"""
FORMULA = """\
    a job:   hosts x (start + tail)               host-seconds; of one whose script raises: hosts x (start + gone)
    a year:  a job x jobs per day x {year} / 3600   host-hours
"""
NOTES = (
    """*Start* is from the last container's start to the last script's first line, *tail* from the last script's end to
    the last container's exit. Not counted: what SageMaker itself takes to get hosts and to pull the image.""",
    """Assumed: {jobs} jobs a day{price}. That is an example: a year costs in proportion to the jobs, and
    `python -m benchmarks.report.cost` has an option for it, for the hosts and for the price of a host's hour.""",
)
FAILING = """
*Gone* is from the moment when a script raises to the last container's exit, on average over the processes that raise in
the benchmark. Where other hosts go on with their scripts, it is counted until they are cut at the benchmark's limit: it
is at least that, and in a real job what is left of it. A job is counted until its last container is gone: whether
SageMaker ends the other hosts when one has failed is documented nowhere, and if it does, the table above is all.
The share is an example, too: `--failed-share`.
"""
CARRIED = """
More hosts were not measured with the toolkit. **For these, its seconds with the most hosts are carried over as they
are**: it polls and sleeps for fixed times (30 s after mpirun's end, for one), and whatever of it grows with the hosts
is left out, in its favour. """
GROWTH = """
For the launcher, the rendezvous and the time to tell all hosts, of a job that is no smaller and on one machine
([many-hosts.md](many-hosts.md)), are added to its seconds, though a part of both is in them already."""
NO_GROWTH = "The launcher's are carried over in the same way: its growth was not measured."


@dataclass(frozen=True)
class Assumed:
    jobs_per_day: float = 100
    failed_share: float = 0.05  # of the jobs that end because a script fails
    hosts: tuple[int, ...] = (2, 16, 64)
    price: float | None = None  # of a host's hour


@dataclass(frozen=True)
class Seconds:
    """Of one mode on one side, in a job of so many hosts. `gone` is None where no failure was measured."""

    hosts: int
    start: float
    tail: float
    gone: float | None = None
    gone_is_least: bool = False  # some of its failures were cut before the last host was gone

    def idle(self, hosts: int, failed_share: float) -> float:
        """Host-seconds of a job, on average. Where no failure was measured, failed jobs count as the others."""
        end = self.tail if self.gone is None else (1 - failed_share) * self.tail + failed_share * self.gone
        return hosts * (self.start + end)


@dataclass(frozen=True)
class Growth:
    """What the launcher takes longer in larger jobs, as many-hosts measured it on one machine."""

    rendezvous: dict[int, float] = field(default_factory=dict)
    told_all: dict[int, float] = field(default_factory=dict)

    def at(self, hosts: int) -> tuple[float, float]:
        """(seconds for the start, for the end) of the next larger job that was measured: no less than it takes."""
        return _next(self.rendezvous, hosts), _next(self.told_all, hosts)


def _next(found: dict[int, float], hosts: int) -> float:
    return next((found[count] for count in sorted(found) if count >= hosts), max(found.values(), default=0.0))


def seconds(runs: list[dict[str, Any]], mode: str, side: str) -> list[Seconds]:
    """For every number of hosts that was measured, few to many; of a number's cases the one with one rank per host."""
    cases = {run["hosts"]: run["case"] for run in reversed(runs) if run["case"].startswith(f"start-{mode}-")}
    failures = sorted({run["case"] for run in runs if run["case"].startswith(f"raise-{mode}-")})
    gone = [found for case in failures if (found := _of(runs, case, side, "gone_s"))]
    lengths = [found.median if found.median is not None else found.limit or 0 for found in gone]
    found = []
    for hosts, case in sorted(cases.items()):
        start, tail = (_of(runs, case, side, measure) for measure in ("start_s", "tail_s"))
        if start and tail and start.median is not None and tail.median is not None:
            least = any(figure.median is None for figure in gone)
            found.append(Seconds(hosts, start.median, tail.median, statistics.mean(lengths) if gone else None, least))
    return found


def _of(runs: list[dict[str, Any]], case: str, side: str, measure: str) -> Measured | None:
    return measured([run for run in runs if run["case"] == case and run["side"] == side], measure)


def growth(record: dict[str, Any] | None) -> Growth:
    found = by_hosts(record["runs"]) if record else {}
    medians = [
        {hosts: figure.median for hosts, figure in found.get(measure, {}).items() if figure.median is not None}
        for measure in ("rendezvous_s", "told_all_s")
    ]
    return Growth(*medians)


def carried(known: list[Seconds], hosts: int, more: Growth) -> Seconds:
    """What was measured with that many hosts; else with the most that were, and `more` for the rest."""
    if exact := [each for each in known if each.hosts == hosts]:
        return exact[0]
    most = known[-1]
    start, end = more.at(hosts)
    gone = None if most.gone is None else most.gone + end
    return Seconds(most.hosts, most.start + start, most.tail + end, gone, most.gone_is_least)


@dataclass(frozen=True)
class Line:
    """One row of the page: a mode, in jobs of so many hosts."""

    mode: str
    hosts: int
    of: dict[str, Seconds]
    idle: dict[str, float]  # host-seconds of a job
    failed_share: float

    def is_least(self, side: str) -> bool:
        return self.failed_share > 0 and self.of[side].gone_is_least

    def per_year(self, side: str, jobs_per_day: float) -> float:
        """Host-hours."""
        return self.idle[side] * jobs_per_day * YEAR / 3600


def lines_of(runs: list[dict[str, Any]], more: Growth, assumed: Assumed) -> list[Line]:
    found = []
    for mode in MODES:
        known = {side: seconds(runs, mode, side) for side in SIDES}
        if not all(known.values()):
            continue
        for hosts in (1,) if mode == "single" else assumed.hosts:
            of = {side: carried(known[side], hosts, more if side == "ours" else Growth()) for side in SIDES}
            idle = {side: of[side].idle(hosts, assumed.failed_share) for side in SIDES}
            found.append(Line(mode, hosts, of, idle, assumed.failed_share))
    return found


def plotted(lines: list[Line], assumed: Assumed) -> list[Row]:
    """Host-hours a year, as rows of a plot: a line for each mode, a panel for each number of hosts."""
    return [
        Row(
            line.mode, MODES[line.mode], "cost", f"{line.hosts} hosts: host-hours a year",
            *(Measured((line.per_year(side, assumed.jobs_per_day),)) for side in SIDES), (), None,
        )
        for line in lines
        if line.mode != "single"
    ]  # fmt: skip


def page(record: dict[str, Any], many_hosts: dict[str, Any] | None, assumed: Assumed, plot: str = "") -> list[str]:
    runs, more = record["runs"], growth(many_hosts)
    price = "" if assumed.price is None else f", and {assumed.price:g} for a host's hour"
    given = {
        "year": YEAR, "jobs": f"{assumed.jobs_per_day:g}", "failed": f"{assumed.failed_share:.0%}", "price": price,
        "date": record["date"], "commit": record["commit"],
    }  # fmt: skip
    return [
        "# What a job costs beside its script",
        "",
        *words.prose(INTRODUCTION.format(**given)),
        *FORMULA.format(**given).splitlines(),
        "",
        *(line for text in NOTES for line in words.prose(text.format(**given), bullet=True)),
        "",
        *([f"![Host-hours a year]({plot})", ""] if plot else []),
        *_table(lines_of(runs, more, replace(assumed, failed_share=0)), assumed),
        f"## With {given['failed']} of the jobs failing",
        "",
        *words.prose(FAILING),
        *_table(lines_of(runs, more, assumed), assumed),
        "## What it is computed from",
        "",
        "Seconds, medians:",
        "",
        *_inputs(runs),
        *words.prose(CARRIED + (GROWTH if many_hosts else NO_GROWTH)),
    ]


def _table(lines: list[Line], assumed: Assumed) -> list[str]:
    head = ["mode", "hosts", "host-seconds per job: ours", "toolkit", "ratio", "host-hours a year: ours", "toolkit"]
    head += ["less a year"] + ([] if assumed.price is None else [f"at {assumed.price:g} an hour"])
    body = []
    for line in lines:
        idle, year = line.idle, {side: line.per_year(side, assumed.jobs_per_day) for side in SIDES}
        least = {side: "at least " if line.is_least(side) else "" for side in SIDES}
        exact = all(line.of[side].hosts == line.hosts for side in SIDES)
        less = year["toolkit"] - year["ours"]
        row = [MODES[line.mode], f"{line.hosts}{'' if exact else ' (carried over)'}"]
        row += [least[side] + words.number(idle[side]) for side in SIDES]
        row += [words.number(idle["ours"] / idle["toolkit"])]
        row += [least[side] + words.number(year[side]) for side in SIDES]
        row += [words.number(less)] + ([] if assumed.price is None else [words.number(less * assumed.price)])
        body.append(row)
    return words.table(head, body)


def _inputs(runs: list[dict[str, Any]]) -> list[str]:
    head = ["mode", "hosts", *(f"{side}: {name}" for side in SIDES for name in ("start", "tail", "gone"))]
    body = []
    for mode, said in MODES.items():
        known = {side: {each.hosts: each for each in seconds(runs, mode, side)} for side in SIDES}
        for hosts in sorted(known["ours"].keys() & known["toolkit"].keys()):
            of = [known[side][hosts] for side in SIDES]
            body.append([said, hosts, *(cell for each in of for cell in _cells(each))])
    return words.table(head, body)


def _cells(each: Seconds) -> list[str]:
    gone = "not measured" if each.gone is None else f"{'at least ' * each.gone_is_least}{words.number(each.gone)}"
    return [words.number(each.start), words.number(each.tail), gone]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--jobs-per-day", type=_above_zero, default=Assumed.jobs_per_day)
    options.add_argument("--failed-share", type=_share, default=Assumed.failed_share, help="of all jobs, 0 to 1")
    options.add_argument("--hosts", type=_count, nargs="+", default=Assumed.hosts, help="of a job")
    options.add_argument("--price", type=_above_zero, help="of a host's hour, in whatever currency; default: none")
    options.add_argument("--folder", type=Path, default=FOLDER, help="where the JSON files lie")
    given = options.parse_args()
    many = given.folder / "many-hosts.json"
    try:
        record, many_hosts = read(given.folder / "side-by-side.json"), read(many) if many.exists() else None
    except BadRecord as error:
        sys.exit(str(error))
    assumed = Assumed(given.jobs_per_day, given.failed_share, tuple(given.hosts), given.price)
    print("\n".join(page(record, many_hosts, assumed)))


def _above_zero(word: str) -> float:
    if (value := float(word)) > 0:
        return value
    raise argparse.ArgumentTypeError(f"found {word}; wanted a number above 0")


def _share(word: str) -> float:
    if 0 <= (value := float(word)) <= 1:
        return value
    raise argparse.ArgumentTypeError(f"found {word}; wanted 0 to 1")


def _count(word: str) -> int:
    if (value := int(word)) > 0:
        return value
    raise argparse.ArgumentTypeError(f"found {word}; wanted 1 or more")


if __name__ == "__main__":
    main()
