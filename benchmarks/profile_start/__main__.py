"""Measure each millisecond from a container's start to the script's first line, and from its end to the container's.

For one host, parameter servers and MPI, in turns: ours, and the floor, the same script by hand in the same image.
Needs root, Docker and the image. Prints tables; --json FILE keeps the figures.
"""

import statistics
import sys
from typing import Any

from benchmarks import machine
from benchmarks.profile_start import jobs, phases
from benchmarks.profile_start.jobs import CASES, Ran
from benchmarks.profile_start.kernel import Unseen

TRIES = 5  # of a job that a busy machine hides

PREPARED = ("the user's code prepared", "prepare", "exit")
SCRIPT = ("to the script's exec", "train.py", "exec")
LAUNCHER = (
    ("docker-entrypoint", "train", "exec"),
    ("the launcher's Python, its imports, the job read and planned", "prepare", "exec"),
)
# Phases, each with what ends it.
START = {
    ("single", "ours"): (*LAUNCHER, PREPARED, SCRIPT),
    ("single", "floor"): (SCRIPT,),
    ("ps", "ours"): (*LAUNCHER, PREPARED, ("to the script's exec; the hosts meet", "train.py", "exec")),
    ("ps", "floor"): (SCRIPT,),
    ("mpi", "ours"): (
        *LAUNCHER,
        ("ssh keys", "ssh-keygen", "exit"),
        ("the hosts meet; sshd's exec", "sshd", "first exec"),
        PREPARED,
        ("all ready; mpirun's exec", "mpirun", "exec"),
        ("mpirun, to ssh", "ssh", "exec"),
        ("ssh, to the forced command", "forced_command.py", "exec"),
        ("the forced command, to orted", "orted", "exec"),
        ("orted, to the rank programs", "rank.py", "exec"),
        ("the rank programs, to the script's exec", "train.py", "exec"),
    ),
    ("mpi", "floor"): (
        ("sshd's exec", "sshd", "first exec"),
        ("sshd listens; mpirun's exec", "mpirun", "exec"),
        ("mpirun, to ssh", "ssh", "exec"),
        ("ssh, to orted", "orted", "exec"),
        ("orted, to the script's exec", "train.py", "exec"),
    ),
}
END = {("mpi", "ours"): (("the rank programs", "rank.py", "exit"), ("mpirun", "mpirun", "exit"))}


def measured(case: str, side: str, ran: Ran) -> dict[str, Any]:
    kind = "floor" if side == "floor" else "ours"
    start = phases.start(ran.hosts, START[case, kind])
    end = phases.end(ran.hosts, "train.py", END.get((case, kind), ()))
    measures = {"start_s": sum(s for _, s in start), "tail_s": sum(s for _, s in end)}
    if case == "mpi":
        measures["mpirun_s"] = phases.since(ran.hosts, "mpirun")
    measures |= {"engine_start_s": ran.engine_start, "engine_end_s": ran.engine_end}
    return {
        "measures": {name: round(value, 4) for name, value in measures.items()},
        "phases": {
            "start": [[name, round(s, 4)] for name, s in start],
            "end": [[name, round(s, 4)] for name, s in end],
        },
    }


def table(runs: list[dict[str, Any]]) -> str:
    lines = []
    for case in dict.fromkeys(run["case"] for run in runs):
        for side in dict.fromkeys(run["side"] for run in runs):
            mine = [run for run in runs if (run["case"], run["side"]) == (case, side)]
            lines += [f"\n{CASES[case].title}, {side}"]
            for measure in mine[0]["measures"]:
                lines.append(_row(measure, [run["measures"][measure] for run in mine]))
            for part in ("start", "end"):
                for at, (name, _) in enumerate(mine[0]["phases"][part]):
                    lines.append(_row(f"  {name}", [run["phases"][part][at][1] for run in mine]))
    return "\n".join(lines)


def _row(name: str, seconds: list[float]) -> str:
    figures = [1000 * value for value in (statistics.median(seconds), min(seconds), max(seconds))]
    return f"{name:64} {figures[0]:8.1f} ms ({figures[1]:.1f} to {figures[2]:.1f})"


def seen(image: str, case: jobs.Case, ours: bool) -> Ran:
    """Run a job until the kernel's reports show it, at most TRIES times."""
    for left in reversed(range(TRIES)):
        try:
            return jobs.run(image, case, ours)
        except Unseen as error:
            if not left:
                raise
            print(f"once more: {error}", file=sys.stderr, flush=True)
    raise AssertionError


def main() -> None:
    parser = machine.parser(__doc__, rounds=7, counted="counted ones, after one that is not")
    parser.add_argument("--image", default="sagemaker-tf-entrypoint:latest")
    parser.add_argument("--before", metavar="IMAGE", help="an older image of ours, which takes its turn, too")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    arguments = parser.parse_args()
    images = {"floor": arguments.image, "before": arguments.before, "ours": arguments.image}
    images = {side: image for side, image in images.items() if image}
    record = machine.head("profile")
    for number in range(arguments.rounds + 1):
        for case in arguments.cases:
            for side, image in images.items():
                ran = seen(image, CASES[case], ours=side != "floor")
                if number:
                    head = {"case": case, "title": CASES[case].title, "hosts": len(ran.hosts), "side": side}
                    machine.add(record, {**head, "round": number, **measured(case, side, ran)}, arguments.json)
    print(table(record["runs"]))


if __name__ == "__main__":
    main()
