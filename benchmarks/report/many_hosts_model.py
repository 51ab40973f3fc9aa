"""The page about many hosts that are simulated: how figures grow, and what would break first."""

import itertools
import math
from typing import Any

from benchmarks.report.figures import Measured, Run, measured, where
from benchmarks.report.many_hosts import by_hosts, exponent
from benchmarks.report.words import number, shown

MET, TOLD = 5.0, 1.0  # seconds at most, at a thousand hosts
AIMED_AT = 1000
COSTS = {
    "accept": "the coordinator takes a connection, and closes it",
    "request": "it reads a report on a new connection, answers, keeps the connection",
    "link": "it reads and answers a report over a connection that stays",
    "tell": "it tells one follower something new",
    "record": "it takes a piece of a record, which a monitor brings over a connection of its own",
    "ask": "a follower connects, reports, hears the answer",
    "say": "it reports over a connection that stays, hears the answer",
    "probe": "a host looks whether another is there",
}
SHOWN = (
    "rendezvous_s", "rendezvous_coordinator_cpu_s", "rendezvous_waited_s", "connections_a_second", "backlog", "dropped",
    "failed_calls", "rendezvous_bytes_in", "rendezvous_bytes_out", "requests_per_s", "coordinator_cpu_share",
    "steady_waited_s", "bytes_in_per_s", "bytes_out_per_s", "verdict_s", "told_all_s", "all_ended_s",
    "end_coordinator_cpu_s", "end_waited_s", "end_bytes_in", "end_bytes_out", "coordinator_memory_bytes",
    "memory_per_host_bytes",
)  # fmt: skip
HARDER = ("rendezvous_s", "verdict_s", "told_all_s", "links_lost_per_hour", "false_alarms")
LOADED = ("rendezvous_s", "coordinator_cpu_share", "steady_waited_s", "told_all_s")


BROKEN = (
    ("told_all_s", TOLD, f"all are told later than {TOLD:g} s"),
    ("rendezvous_s", MET, f"all have met later than {MET:g} s"),
    ("false_alarms", 0, "a host that is there is taken for lost"),
)


def context(record: dict[str, Any]) -> dict[str, Any]:
    """Return what the page's template takes beside the record."""
    runs = record["runs"]
    sizes = where(runs, part="sizes")
    figures = {name: each for name, each in by_hosts(sizes).items() if name in SHOWN}
    powers = {name: exponent(each) for name, each in figures.items()}
    return {
        "figures": {name: figures[name] for name in SHOWN if name in figures},
        "counts": sorted({run["hosts"] for run in sizes}),
        "rounds": len({run["seed"] for run in sizes}),
        "powers": {name: "" if power is None else f"{power:.2f}" for name, power in powers.items()},
        "judged": judged(sizes),
        "aimed_at": AIMED_AT,
        "costs": [(COSTS[name], 1e6 * seconds) for name, seconds in record.get("costs", {}).items()],
        "breaks": breaks(runs, record.get("allowed", {})),
        "harder": [row for part in ("loss", "latency") for row in harder(runs, part)],
        "harder_measures": HARDER,
        "gives_way": [words for part in ("loss", "latency") for words in gives_way(runs, part)],
        "loaded": loaded(runs),
        "loaded_measures": LOADED,
        "hour": next(iter(where(runs, part="hour")), None),
    }


def judged(sizes: list[Run]) -> list[tuple[str, float, Measured | None, bool | None]]:
    """Return (measure, at most, figure, whether it is met) at so many hosts as is aimed at."""
    found = []
    for name, most in (("rendezvous_s", MET), ("told_all_s", TOLD)):
        figure = measured(sizes, name, hosts=AIMED_AT)
        found.append((name, most, figure, None if figure is None or figure.median is None else figure.median <= most))
    return found


def harder(runs: list[Run], part: str) -> list[tuple[str, list[str]]]:
    """Return a row for each: what is harder than usual, and what comes of it."""
    return [(_network(run), _cells(run, HARDER)) for run in where(runs, part=part)]


def gives_way(runs: list[Run], part: str) -> list[str]:
    """Return what is broken first with which network, of those that are worse and worse."""
    found = []
    for name, most, words in BROKEN:
        if broken := [run for run in where(runs, part=part) if run["measures"].get(name, 0) > most]:
            found.append(f"{words} with {_network(broken[0])}")
    return found


def _network(run: Run) -> str:
    if run["part"] == "loss":
        return f"{100 * run.get('loss', 0.01):g} % loss"
    return f"{1000 * run.get('latency', 0.0005):g} ms one way"


def loaded(runs: list[Run]) -> list[tuple[int, list[str]]]:
    """Return a row for each job whose monitors bring their records."""
    return [(run["hosts"], _cells(run, LOADED)) for run in where(runs, part="records")]


def _cells(run: Run, names: tuple[str, ...]) -> list[str]:
    return [shown(run["measures"][name], name) if name in run["measures"] else "never" for name in names]


def breaks(runs: list[Run], allowed: dict[str, int]) -> list[tuple[int, str]]:
    """Return (hosts, what breaks there), few hosts first."""
    found: list[tuple[int, str]] = []
    if allowed:
        found = [
            (allowed["links"] + 1, _descriptors(runs)),
            (allowed["max_hosts"] + 1, "refused: the launcher takes no more hosts (`MAX_HOSTS` of `job/files.py`)"),
            (
                allowed["max_tasks"] + 1,
                "refused with MultiWorkerMirrored and parameter servers (`MAX_TASKS` of `job/config.py`)",
            ),
            (allowed["backlog"] + 1, _backlog(runs, allowed["backlog"])),
            (
                allowed["tf_config"] + 1,
                "`TF_CONFIG`, which has all addresses, is more than Linux takes in one variable (128 KiB)",
            ),
        ]
    if hosts := saturated(where(runs, part="records")):
        found.append((hosts, "the coordinator's core is busy all the time, with the records that monitors bring"))
    for name, most in (("told_all_s", TOLD), ("rendezvous_s", MET)):
        if hosts := reaches(by_hosts(where(runs, part="sizes")).get(name, {}), most):
            words = "all are told later than" if name == "told_all_s" else "all have met later than"
            found.append((hosts, f"{words} {most:g} s"))
    return sorted(found)


def _descriptors(runs: list[Run]) -> str:
    said = "where the limit of open files is 1,024, as a login's: no connection stays of more followers than that"
    if run := next(iter(where(runs, part="descriptors")), None):
        told = run["measures"].get("told_all_s")
        said += f"; of 1,000 hosts {run['measures']['links']:,} have one"
        said += "" if told is None else f", and all are told after {number(told)} s"
    return said


def _backlog(runs: list[Run], allowed: int) -> str:
    said = f"the kernel's queue of {allowed - 1:,} connections overflows where all hosts start at once"
    large = [run for run in where(runs, part="sizes") if run["measures"].get("dropped")]
    if large:
        most = max(run["hosts"] for run in large)
        dropped = measured(large, "dropped", hosts=most)
        said += f"; {dropped.median:,.0f} SYNs are dropped at {most:,}" if dropped and dropped.median else ""
    return said


def saturated(runs: list[Run]) -> int | None:
    """Return with how many hosts a core has no time left, by the two largest jobs that left it some."""
    shares = {run["hosts"]: run["measures"]["coordinator_cpu_share"] for run in runs}
    left = sorted((hosts, share) for hosts, share in shares.items() if share < 0.98)
    if len(left) < 2:
        return None
    (few, before), (many, after) = left[-2:]
    return round(many + (1 - after) * (many - few) / (after - before)) if after > before else None


def reaches(figures: dict[int, Measured], most: float) -> int | None:
    """Return with how many hosts a figure has grown to that, between two sizes; None if it has not."""
    known = [(hosts, each.median) for hosts, each in figures.items() if each.median is not None]
    for (few, before), (many, after) in itertools.pairwise(known):
        if before <= most < after:
            return round(few * (most / before) ** (math.log(many / few) / math.log(after / before)))
    return None
