"""Run our launcher, AWS's toolkit, the drivers of SageMaker's SDK 3, and jobs by hand, in turns, in containers.

See benchmarks/README.md.

python -m benchmarks.side_by_side --rounds 5 --json docs/benchmarks/side-by-side.json
python -m benchmarks.side_by_side --installs --rounds 3 --json docs/benchmarks/installs.json
python -m benchmarks.side_by_side --quick
"""

import argparse
import fnmatch
import json
import sys
import time

from benchmarks import docker, machine
from benchmarks.side_by_side import peers, quick, rounds
from benchmarks.side_by_side.cases import (
    BY_HAND,
    CASES,
    DRIVERS,
    LIMITS,
    ON_REQUEST,
    OURS,
    PACKAGES,
    SIDES,
    START,
    TOOLKIT,
    UNWATCHED,
    Case,
)
from benchmarks.side_by_side.run import run, run_packages


def main() -> int:
    arguments = parse()
    record = machine.head("installs" if arguments.installs else "side-by-side", LIMITS)
    if arguments.resume and arguments.json.exists():
        record = json.loads(arguments.json.read_text())
    try:
        sides = arguments.sides.split(",")
        names = {OURS: arguments.image}
        if set(sides) & {TOOLKIT, DRIVERS, *BY_HAND}:
            names[TOOLKIT] = peers.build_toolkit(arguments.image)
        if DRIVERS in sides:
            names[DRIVERS] = names[TOOLKIT]  # as of AWS's images, which have keys for ssh, too
            peers.asked()
        names[UNWATCHED] = names[OURS]
        names |= {side: names[TOOLKIT] for side in sides if side in BY_HAND}
        measure(arguments, record, names, sides)
    finally:
        docker.remove_all()
    if arguments.quick:
        found = quick.complaints(record["runs"])
        say(*found or ["nothing that noise does not explain"])
        return 1 if found else 0
    return 0


def parse() -> argparse.Namespace:
    parser = machine.parser(__doc__, rounds=5, counted="counted ones, after a warm-up")
    parser.add_argument(
        "--cases", default="*", metavar="PATTERN", help="names with * and ?, commas between them; default: all"
    )
    parser.add_argument(
        "--sides",
        help=f"default: {','.join(SIDES)}; --quick or --installs {OURS},{TOOLKIT}; others: {','.join(ON_REQUEST)}",
    )
    parser.add_argument("--resume", action="store_true", help="leave out what the JSON file has already")
    parser.add_argument("--image", default="sagemaker-tf-entrypoint:latest", help="ours; the toolkit's is built on it")
    parser.add_argument("--installs", action="store_true", help="the cases that install packages, and no others")
    parser.add_argument(
        "--quick", action="store_true", help="some cases, slow ones again; exit code 1 for what cannot be noise"
    )
    parser.add_argument("--list", action="store_true", help="print the cases and end")
    arguments = parser.parse_args()
    patterns = arguments.cases.split(",")
    arguments.chosen = [
        case
        for case in CASES
        if any(fnmatch.fnmatchcase(case.name, pattern) for pattern in patterns)
        and (case.name in quick.CASES or not arguments.quick)
        and (case.group == PACKAGES) == arguments.installs
    ]
    arguments.sides = arguments.sides or ",".join(SIDES[:2] if arguments.quick or arguments.installs else SIDES)
    if unknown := set(arguments.sides.split(",")) - {*SIDES, *ON_REQUEST}:
        parser.error(
            f"--sides: found {', '.join(sorted(unknown))}; "
            f"wanted some of {', '.join((*SIDES, *ON_REQUEST))}, with commas between them"
        )
    if not arguments.chosen:
        parser.error(f"--cases: no case is called {arguments.cases}; --list shows them all")
    if arguments.resume and not arguments.json:
        parser.error("--resume: wanted --json FILE, too, to go on from")
    if arguments.list:
        print("\n".join(f"{case.name:22} {case.title}" for case in arguments.chosen))
        sys.exit()
    if arguments.quick:
        arguments.rounds = quick.ROUNDS
    return arguments


def measure(arguments: argparse.Namespace, record: dict, names: dict[str, str], sides: list[str]) -> None:
    had = {(each["case"], each["side"], each["round"]) for each in record["runs"]}

    def do(case: Case, side: str, at_work: rounds.Signal = None) -> rounds.Run:
        if case.packages and not case.event:
            return run_packages(case, side, names)
        return run(quick.shortened(case, side) if arguments.quick else case, side, names, at_work)

    if not arguments.quick:
        for case in arguments.chosen:
            if case.group == START and case.hosts * case.ranks <= 2:
                for side in filter(case.runs_on, sides):
                    say(f"warm-up: {case.name}, {side}")
                    do(case, side)
    for number in range(1, arguments.rounds + 1):
        due = [
            (case, side)
            for case in arguments.chosen
            for side in sides
            if case.runs_on(side)
            and number <= (case.rounds or number)
            and (case.name, side, number) not in had
            and cuts(record["runs"], case, side) < rounds.CUTS
            and (not arguments.quick or quick.is_due(case, number, record["runs"]))
        ]
        for result in rounds.one_round(due, do, rounds.waits_in_its_tail if arguments.quick else rounds.waits):
            record["runs"].append({**result, "round": number})
            say(f"{number}/{arguments.rounds} {shown(result)}")
            if arguments.json:
                machine.write(arguments.json, record)


def cuts(runs: list[rounds.Run], case: Case, side: str) -> int:
    return sum((run["case"], run["side"]) == (case.name, side) and run["cut_at_s"] is not None for run in runs)


def shown(result: rounds.Run) -> str:
    figures = " ".join(f"{name}={value:g}" for name, value in result["measures"].items())
    cut = "" if result["cut_at_s"] is None else f" CUT at {result['cut_at_s']:g} s"
    ended = f"codes={result['exit_codes']}{cut}{'' if result['right'] else ' (not right)'}"
    return f"{result['case']} {result['side']}: {figures} {ended}"


def say(*lines: str) -> None:
    for line in lines:
        print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
