"""Measure each millisecond from a container's start to the script's first line, and from its end to the container's.

For one host, parameter servers and MPI, in turns: ours, and the floor, the same script by hand in the same image.
Needs root, Docker and the image. Prints its page; --json FILE keeps the figures.
"""

import sys
from typing import Any

from benchmarks import machine
from benchmarks.profile_start import jobs, phases
from benchmarks.profile_start.jobs import CASES
from benchmarks.profile_start.kernel import Unseen
from benchmarks.profile_start.phases import Host
from benchmarks.report import page

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


def measured(case: str, side: str, hosts: list[Host]) -> dict[str, Any]:
    kind = "floor" if side == "floor" else "ours"
    start = phases.start(hosts, START[case, kind])
    end = phases.end(hosts, "train.py", END.get((case, kind), ()))
    measures = {"start_s": sum(s for _, s in start), "tail_s": sum(s for _, s in end)}
    return {
        "measures": {name: round(value, 4) for name, value in measures.items()},
        "phases": {
            "start": [[name, round(s, 4)] for name, s in start],
            "end": [[name, round(s, 4)] for name, s in end],
        },
    }


def seen(image: str, case: jobs.Case, ours: bool) -> list[Host]:
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
                hosts = seen(image, CASES[case], ours=side != "floor")
                if number:
                    head = {"case": case, "title": CASES[case].title, "hosts": len(hosts), "side": side}
                    machine.add(record, {**head, "round": number, **measured(case, side, hosts)}, arguments.json)
    print(page(record))


if __name__ == "__main__":
    main()
