"""Hold what the tests cost against a budget: CPU seconds, as seconds of wall time differ from machine to machine.

conftest.py measures each test with a `Meter` and writes one line for each ring into the file COUNTS of tests/run.sh.

    python tests/costs.py judge COUNTS [--growth]      # print the costs; exit with 1 if they exceed the budget
    python tests/costs.py keep COUNTS                  # make the costs in COUNTS the recorded ones
    python tests/costs.py run RING COUNTS -- COMMAND   # run a command that is no test, and measure it as a ring
    python tests/costs.py containers COUNTS            # note the CPU time of Docker's containers up to now

tests/costs.json holds the budget, in CPU seconds for each ring, and the costs of the last run that was recorded. All
CPU seconds are those of one speed: a `Meter` also times a fixed piece of work, now and then, and divides by it.
"""

import argparse
import contextlib
import hashlib
import json
import re
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

RECORD = ROOT / "tests" / "costs.json"
TOLERANCE = 1.1  # a run may cost so many times its budget
# Seconds of CPU that `work` takes at the speed in which all costs are given: that of an idle core of a 2.6 GHz EPYC.
WORK_SECONDS = 0.020
PAUSE_SECONDS = 3.0  # between two timings of `work`
SLOWEST = 20
WORTH_NAMING_SECONDS = 1.0  # a test that has grown by less is not named where the budget is exceeded
WORTH_KEEPING_SECONDS = 0.3  # a test that costs less is not in the record
CONTAINERS = "containers"  # the ring's name for the CPU time of all containers, which no test's process sees


# ---- measuring ------------------------------------------------------------------------------------------------------


def cpu_seconds(*of: int) -> float:
    """Return the CPU time of this process, and of its children that it has waited for, with their own such children."""
    used = map(resource.getrusage, of or (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def work() -> float:
    """Do a fixed piece of work of the kind that tests do; return the CPU seconds that it took."""
    began = time.thread_time()
    rows = [{"host": f"algo-{n}", "rank": n, "values": [n * k % 97 for k in range(40)]} for n in range(150)]
    for _ in range(30):
        text = json.dumps(rows)
        found = [match[0] for match in re.finditer(r"algo-\d+", text)]
        digest = hashlib.sha256("".join(sorted(found)).encode()).digest()
        rows = sorted(json.loads(text), key=lambda row: digest[row["rank"] % 32])
    return time.thread_time() - began


@dataclass
class Meter:
    """The measured tests of one process."""

    costs: dict[str, list[float]] = field(default_factory=dict)  # test -> CPU seconds and seconds
    work: list[float] = field(default_factory=list)  # CPU seconds of each timing of `work`
    _next: float = 0.0

    @contextlib.contextmanager
    def test(self, node_id: str) -> Iterator[None]:
        """Add what runs inside to the test of that id; the cases of one test function are counted together."""
        if time.monotonic() >= self._next:
            self.work.append(work())
            self._next = time.monotonic() + PAUSE_SECONDS
        cpu, began = cpu_seconds(), time.monotonic()
        yield
        cost = self.costs.setdefault(node_id.partition("[")[0], [0.0, 0.0])
        cost[0] += cpu_seconds() - cpu
        cost[1] += time.monotonic() - began

    def total(self) -> dict[str, Any]:
        """Return all of it, with the CPU time of this whole process, as JSON can hold it."""
        return {"costs": self.costs, "work": self.work, "cpu": cpu_seconds()}

    def total_with(self, workers: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the costs of a ring, in CPU seconds of the one speed; `workers`: totals of xdist's processes."""
        if not workers:
            return ring_of([self.total()])
        # This process has run no test, and may or may not have waited for the workers yet.
        return ring_of([*workers, {"costs": {}, "work": [], "cpu": cpu_seconds(resource.RUSAGE_SELF)}])


def ring_of(totals: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the costs of a ring from the totals of its processes."""
    costs: dict[str, list[float]] = {}
    for total in totals:
        for name, (cpu, seconds) in total["costs"].items():
            before = costs.get(name, [0.0, 0.0])
            costs[name] = [before[0] + cpu, before[1] + seconds]
    speed = speed_of([each for total in totals for each in total["work"]])
    return {
        "cpu_seconds": round(sum(total["cpu"] for total in totals) / speed, 1),
        "slowness": round(speed, 2),
        "costs": {name: [round(cpu / speed, 2), round(seconds, 1)] for name, (cpu, seconds) in costs.items()},
    }


def speed_of(timings: list[float]) -> float:
    """Return how many times as long as at the one speed a piece of work took; 1 where none was timed."""
    return statistics.median(timings) / WORK_SECONDS if timings else 1.0


def containers() -> float:
    """Return the CPU seconds of all containers since Docker runs; 0 if none ran or the kernel does not count them."""
    for path, unit in (
        ("/sys/fs/cgroup/cpuacct/docker/cpuacct.usage", 1e9),
        ("/sys/fs/cgroup/docker/cpu.stat", 1e6),  # version 2, under a dockerd that does not leave this to systemd
    ):
        with contextlib.suppress(OSError):
            return float(Path(path).read_text().removeprefix("usage_usec").split()[0]) / unit
    return 0.0


# ---- judging --------------------------------------------------------------------------------------------------------


def read(counts: Path) -> dict[str, dict[str, Any]]:
    """Return the rings of COUNTS that were measured, by name. The containers' time is what lies between two notes."""
    rings: dict[str, dict[str, Any]] = {}
    notes: list[float] = []
    for line in map(json.loads, counts.read_text().splitlines()):
        if line["ring"] == CONTAINERS:
            notes.append(line["cpu_seconds_so_far"])
        elif "costs" in line:
            rings[line["ring"]] = line
    if notes and notes[-1] > notes[0]:
        slowness = statistics.mean([ring["slowness"] for ring in rings.values()] or [1.0])
        used = round((notes[-1] - notes[0]) / slowness, 1)
        rings[CONTAINERS] = {"cpu_seconds": used, "slowness": slowness, "seconds": 0, "costs": {}}
    return rings


def judge(rings: Mapping[str, dict[str, Any]], record: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return the lines of the table of costs, and complaints: none if the budget of the rings that ran holds."""
    budget, recorded = record["budget"], record["recorded"]
    table = [f"{'ring':12} {'wall s':>7} {'CPU s':>7} {'budget':>7} {'recorded':>9} {'growth':>7} {'slowness':>9}"]
    for name, ring in rings.items():
        before = recorded["rings"].get(name)
        table.append(_row(name, ring["seconds"], ring["cpu_seconds"], budget.get(name), before, ring["slowness"]))
    judged = [name for name in rings if name in budget]
    spent, allowed = (sum(each) for each in ([rings[n]["cpu_seconds"] for n in judged], [budget[n] for n in judged]))
    before = sum(recorded["rings"].get(name, 0) for name in judged)
    table.append(_row("sum", sum(ring["seconds"] for ring in rings.values()), spent, allowed, before, None))
    table.append(f"recorded: {recorded['date']}, {recorded['commit']}. CPU seconds are those of one speed;")
    table.append("slowness: how many times as long this machine takes for the same work")
    if spent <= TOLERANCE * allowed:
        return table, []
    complaint = f"the tests cost {spent:.0f} CPU seconds; the budget of tests/costs.json is {allowed:.0f}"
    return table, [complaint, *grown(rings, recorded["tests"]), *ADVICE]


ADVICE = (
    "Take as much time away elsewhere, mark a variant with pytest.mark.more, or raise the budget in tests/costs.json",
    "in a commit that says why.",
)


def _row(name: str, wall: float, cpu: float, budget: float | None, before: float | None, slowness: float | None) -> str:
    growth = f"{cpu / before - 1:+.0%}" if before else "new"
    said = [f"{value:.0f}" if value is not None else "none" for value in (budget, before)]
    slow = f"{slowness:.2f}" if slowness is not None else ""
    return f"{name:12} {wall:7.0f} {cpu:7.0f} {said[0]:>7} {said[1]:>9} {growth:>7} {slow:>9}"


def grown(rings: Mapping[str, dict[str, Any]], before: Mapping[str, list[float]]) -> list[str]:
    """Return a line for each test that is new or costs more than in the record, the worst first.

    Tests of containers are compared by their wall time, since their CPU time is that of all containers together.
    """
    found = []
    for ring, costs in ((name, ring["costs"]) for name, ring in rings.items()):
        measure = 1 if ring in ("cluster", "sdk") else 0
        for test, cost in costs.items():
            more = cost[measure] - before.get(test, [0.0, 0.0])[measure]
            if more >= WORTH_NAMING_SECONDS:
                was = f"{before[test][measure]:.1f}" if test in before else "new, or less than could be recorded"
                found.append((more, f"  {test}: {cost[measure]:.1f} s (before: {was})"))
    return [line for _, line in sorted(found, reverse=True)[:SLOWEST]]


def slowest(rings: Mapping[str, dict[str, Any]]) -> list[str]:
    """Return the lines of the slowest tests."""
    tests = [(cost[1], cost[0], test) for ring in rings.values() for test, cost in ring["costs"].items()]
    lines = [f"{wall:7.1f} {cpu:7.1f}  {test}" for wall, cpu, test in sorted(tests, reverse=True)[:SLOWEST]]
    return [f"the {SLOWEST} slowest tests, all cases of each together", f"{'wall s':>7} {'CPU s':>7}", *lines]


# ---- commands -------------------------------------------------------------------------------------------------------


def run(ring: str, counts: Path, command: list[str]) -> int:
    """Run the command, write its costs as those of a ring with one test, and return its exit code."""
    meter, began = Meter(), time.monotonic()
    with meter.test(ring):
        code = subprocess.run(command).returncode
    note(counts, {"ring": ring, "seconds": round(time.monotonic() - began), **meter.total_with([])})
    return code


def note(counts: Path, line: Mapping[str, Any]) -> None:
    """Append a line to COUNTS."""
    with counts.open("a") as file:
        file.write(json.dumps(line) + "\n")


def keep(rings: Mapping[str, dict[str, Any]], record: Path = RECORD) -> None:
    """Make these costs the recorded ones; the budget stays, as a person sets it."""
    from benchmarks import machine

    head = machine.head("costs of the tests")
    tests = {
        test: cost
        for ring in rings.values()
        for test, cost in sorted(ring["costs"].items())
        if max(cost) >= WORTH_KEEPING_SECONDS
    }
    recorded = {
        "date": head["date"],
        "commit": head["commit"],
        "rings": {name: ring["cpu_seconds"] for name, ring in rings.items()},
        "wall_seconds": {name: ring["seconds"] for name, ring in rings.items()},
        "tests": tests,
    }
    budget = json.loads(record.read_text())["budget"] if record.exists() else recorded["rings"]
    text = json.dumps({"budget": budget, "recorded": recorded}, indent=1)
    record.write_text(re.sub(r"\[\s+([\d.]+),\s+([\d.]+)\s+\]", r"[\1, \2]", text) + "\n")  # a test, a line


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    judging = commands.add_parser("judge")
    judging.add_argument("counts", type=Path)
    judging.add_argument("--growth", action="store_true", help="print the costs only: these are not all tests, or more")
    commands.add_parser("keep").add_argument("counts", type=Path)
    commands.add_parser("containers").add_argument("counts", type=Path)
    running = commands.add_parser("run")
    running.add_argument("ring")
    running.add_argument("counts", type=Path)
    running.add_argument("words", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    match arguments.command:
        case "run":
            # argparse leaves the -- or takes it, as the version of Python has it.
            words = arguments.words[arguments.words[:1] == ["--"] :]
            return run(arguments.ring, arguments.counts, words)
        case "containers":
            note(arguments.counts, {"ring": CONTAINERS, "cpu_seconds_so_far": containers()})
            return 0
        case "keep":
            keep(read(arguments.counts))
            return 0
    rings = read(arguments.counts)
    table, complaints = judge(rings, json.loads(RECORD.read_text()))
    print("\n".join([*slowest(rings), "", *table]))
    if arguments.growth or not complaints:
        return 0
    print("\n".join(["", *complaints]))
    return 1


if __name__ == "__main__":
    sys.exit(main())
