"""Run random jobs under random faults, and report those that violated a rule.

    python -m benchmarks.chaos --seed 7 --jobs 100 --at-once 3 --minutes 30 --json chaos.json
    python -m benchmarks.chaos --repeat 7/12               # case 12 of seed 7, with its log
    python -m benchmarks.chaos --repeat 7/12/2             # the same of a run with --least-faults 2
    python -m benchmarks.chaos --repeat out/chaos/7-12.json

With --least-faults N jobs go on until --jobs of them have met as many: a drawn fault does not happen if its moment
never comes. All are judged. Without --seed each run draws another one, and prints it. Exit status 1 if a job violated a
rule; then --keep has each such case, and all that was seen of it.
"""

import argparse
import itertools
import os
import secrets
import shutil
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.chaos.case import Case
from benchmarks.chaos.draw import SERVANTS, draw
from benchmarks.chaos.history import History
from benchmarks.chaos.machine import Heart
from benchmarks.chaos.observed import Observed
from benchmarks.chaos.oracle import rules_of, violations
from benchmarks.chaos.run import Interrupted, end_on, run


def main() -> int:
    given = _arguments()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, end_on)
    heart = Heart()
    try:
        return _main(given, heart)
    except Interrupted:
        return 1
    finally:
        heart.close()


def _main(given: argparse.Namespace, heart: Heart) -> int:
    netns = os.geteuid() == 0 and not given.processes
    mpi = bool(shutil.which("mpirun")) and Path("/usr/sbin/sshd").exists()
    if given.repeat:
        return _repeat(given.repeat, heart, netns, mpi, given.keep, given.mode)
    seed = secrets.randbelow(1_000_000) if given.seed is None else given.seed
    print(f"seed {seed}, engine {'netns' if netns else 'process'}{'' if mpi else ', without MPI'}", flush=True)
    record = machine.head("chaos", limits={"seed": seed, "least_faults": given.least_faults, "at_once": given.at_once})
    drawn = {"netns": netns, "mpi": mpi, "least": given.least_faults, "only": given.mode}
    jobs = (draw(seed, number, **drawn) for number in itertools.count())
    deadline = time.monotonic() + given.minutes * 60
    failed = _run_all(jobs, given, heart, deadline, record)
    print(f"{_counted(record, given)} of seed {seed}, {failed} not as they have to be", flush=True)
    return 1 if failed else 0


def _arguments() -> argparse.Namespace:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seed", type=int, help="default: another one each time")
    options.add_argument("--jobs", type=int, default=100, metavar="N")
    options.add_argument("--at-once", type=int, default=3, metavar="K")
    options.add_argument("--minutes", type=float, default=60.0, help="begin no job after so many")
    options.add_argument(
        "--mode", choices=sorted(SERVANTS), default="", help="of all jobs; without it, of each its own"
    )
    options.add_argument("--least-faults", type=int, default=0, metavar="N", help="to happen in each of --jobs")
    options.add_argument("--processes", action="store_true", help="hosts as processes, though we are root")
    options.add_argument("--json", type=Path, help="write a record for benchmarks.report")
    options.add_argument("--keep", type=Path, default=Path("out/chaos"), help="where failed cases lie afterwards")
    options.add_argument("--repeat", metavar="CASE", help="as it is printed, or a file: run this one, and show its log")
    return options.parse_args()


def _run_all(cases: Any, given: argparse.Namespace, heart: Heart, deadline: float, record: dict[str, Any]) -> int:
    """Run all cases; return how many failed. Raise Interrupted on SIGTERM or SIGINT."""
    lock = threading.Lock()
    errors: list[BaseException] = []

    def work() -> None:
        while time.monotonic() < deadline and not errors and len(_enough(record)) < given.jobs:
            with lock:
                case = next(cases)
            try:
                seen = run(case, heart)
                found = violations(seen)
            except BaseException as error:
                errors.append(error)
                return
            with lock:
                record["runs"].append(_row(seen, found))
                print(_told(seen, found), flush=True)
                if found:
                    print(f"    python -m benchmarks.chaos --repeat {keep(given.keep, case, seen, found)}", flush=True)
                if given.json:
                    machine.write(given.json, record)

    threads = [threading.Thread(target=work) for _ in range(given.at_once)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        print(f"ended after {_counted(record, given)}", flush=True)
        raise errors[0]
    return sum(bool(run["violations"]) for run in record["runs"])


def _enough(record: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the runs in which at least the wanted number of faults happened."""
    return [run for run in record["runs"] if len(run["happened"]) >= record["limits"]["least_faults"]]


def _counted(record: dict[str, Any], given: argparse.Namespace) -> str:
    count, enough = len(record["runs"]), len(_enough(record))
    least = f" ({enough} of {given.jobs} with {given.least_faults} faults or more)" if given.least_faults else ""
    return f"{count} jobs{least}"


def _row(seen: Observed, found: list[str]) -> dict[str, Any]:
    case = seen.case
    ends = sorted(set(seen.exits.values()))
    end = _end_seconds(seen)
    measures = {"wall_s": seen.seconds, "stood_still_s": seen.stood_still, "waited_s": sum(s for _, s in seen.waits)}
    measures = {name: round(seconds, 2) for name, seconds in measures.items()}
    return {
        "case": case.name,
        "mode": case.mode,
        "hosts": case.hosts,
        "drawn": [fault.kind for fault in case.faults],
        "happened": [each.fault.kind for each in History(seen).met],
        "exits": ends,
        "violations": sorted(rules_of(found)),
        "measures": measures if end is None else {**measures, "end_s": end},
    }


def _end_seconds(seen: Observed) -> float | None:
    """Return the seconds from the first event that ends a job until the last host is gone."""
    first = History(seen).first_end
    return round(max(seen.gone.values()) - first, 2) if seen.gone and first < float("inf") else None


def _told(seen: Observed, found: list[str]) -> str:
    case = seen.case
    faults = "; ".join(fault.text for fault in case.faults) or "no fault"
    ends = ",".join(sorted(set(seen.exits.values())))
    head = f"{case.name}: {case.mode}, {case.hosts} x {case.each}, {faults}: {ends}"
    return "\n".join([f"{head} in {seen.seconds:.1f} s", *(f"    VIOLATION {what}" for what in found)])


def keep(folder: Path, case: Case, seen: Observed, found: list[str]) -> Path:
    """Write the case as JSON, and all observations beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = case.name.replace("/", "-").replace(" ", "-")
    (folder / f"{stem}.json").write_text(case.to_json() + "\n")
    (folder / f"{stem}.log").write_text(_everything(seen, found), errors="replace")
    return folder / f"{stem}.json"


def _everything(seen: Observed, found: list[str]) -> str:
    base = seen.began
    parts = [*found, "", seen.case.to_json(), ""]
    for each in seen.injected:
        over = f"{each.over - base:.3f}" if each.over else "the end"
        parts.append(f"{each.at - base:8.3f} {each.fault.text}, until {over}")
    deeds = [d for d in seen.deeds if d.what != "lines"]
    parts += [f"{d.at - base:8.3f} {d.host} {d.process} {d.attempt}.{d.start}: {d.what} {d.words}" for d in deeds]
    parts += [f"{at - base:8.3f} {host} was gone" for host, at in seen.gone.items()]
    parts += [f"exits {dict(seen.exits)}", f"waited for disks {seen.pressure:.2f} s, {seen.slowness:.1f} times as slow"]
    for what, spans in (("stood still", seen.gaps), ("waited for a CPU", seen.waits)):
        parts.append(f"{what}: {', '.join(f'{seconds:.2f} s until {until - base:.2f}' for until, seconds in spans)}")
    parts.append("")
    parts += [f"failure of {host}: {text}" for host, text in seen.failures.items()]
    shown = [line for line in seen.terminal.split("\n") if not ("chaos algo-" in line and line.endswith("..."))]
    return "\n".join([*parts, "", *shown])


def _repeat(word: str, heart: Heart, netns: bool, mpi: bool, folder: Path, only: str) -> int:
    if Path(word).is_file():
        case = Case.from_json(Path(word).read_text())
    else:
        numbers = word.split("/")
        if not (2 <= len(numbers) <= 3 and all(number.isdigit() for number in numbers)):
            sys.exit(f"--repeat is {word!r}; wanted SEED/NUMBER, SEED/NUMBER/LEAST, or a file of --keep")
        seed, number, least = map(int, [*numbers, "0"][:3])
        case = draw(seed, number, netns=netns, mpi=mpi, least=least, only=only)
    seen = run(case, heart)
    found = violations(seen)
    print(_everything(seen, found))
    print(_told(seen, found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
