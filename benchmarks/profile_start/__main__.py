"""Measure each millisecond from a container's start to the script's first line, and from its end to the container's.

For one host, parameter servers and MPI, in turns: ours, and the floor, the same script by hand, which no launcher can
beat, in the toolkit's image of side_by_side. Needs root, Docker and the image. Prints its page; --json FILE keeps the
figures.
"""

import sys
import time
from dataclasses import replace
from typing import Any

from benchmarks import docker, machine
from benchmarks.profile_start import phases
from benchmarks.profile_start.kernel import Kernel, Unseen
from benchmarks.profile_start.phases import Host
from benchmarks.report import page
from benchmarks.side_by_side import peers
from benchmarks.side_by_side.cases import CASES as OF_SIDES
from benchmarks.side_by_side.cases import MPIRUN, OURS, PLAIN, TOOLKIT
from benchmarks.side_by_side.job import Job

TRIES = 5  # of a job that a busy machine hides
BY_NAME = {case.name: replace(case, arguments=(("seconds", "1.5"),)) for case in OF_SIDES}
CASES = {  # name: our case, the case by hand and what starts it
    "single": (BY_NAME["start-single-1"], BY_NAME["start-single-1"], PLAIN),
    "ps": (BY_NAME["start-ps-2"], BY_NAME["start-plain-2"], PLAIN),
    "mpi": (BY_NAME["start-mpi-2x1"], BY_NAME["start-mpi-2x1"], MPIRUN),
}

PREPARED = ("the user's code prepared", "prepare", "exit")
SCRIPT = ("to the script's exec", "acts.py", "exec")
LAUNCHER = (
    ("docker-entrypoint", "train", "exec"),
    ("the launcher's Python, its imports, the job read and planned", "prepare", "exec"),
)
# Phases, each with what ends it.
START = {
    ("single", "ours"): (*LAUNCHER, PREPARED, SCRIPT),
    ("single", "floor"): (SCRIPT,),
    ("ps", "ours"): (*LAUNCHER, PREPARED, ("to the script's exec; the hosts meet", "acts.py", "exec")),
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
        ("the rank programs, to the script's exec", "acts.py", "exec"),
    ),
    ("mpi", "floor"): (
        ("sshd's exec", "sshd", "first exec"),
        ("sshd listens; mpirun's exec", "mpirun", "exec"),
        ("mpirun, to ssh", "ssh", "first exec"),  # at its end, it ends the other host by ssh
        ("ssh, to orted", "orted", "exec"),
        ("orted, to the script's exec", "acts.py", "exec"),
    ),
}
END = {("mpi", "ours"): (("the rank programs", "rank.py", "exit"), ("mpirun", "mpirun", "exit"))}


def measured(case: str, side: str, hosts: list[Host]) -> dict[str, Any]:
    kind = "floor" if side == "floor" else "ours"
    start = phases.start(hosts, START[case, kind])
    end = phases.end(hosts, "acts.py", END.get((case, kind), ()))
    measures = {"start_s": sum(s for _, s in start), "tail_s": sum(s for _, s in end)}
    return {
        "measures": {name: round(value, 4) for name, value in measures.items()},
        "phases": {
            "start": [[name, round(s, 4)] for name, s in start],
            "end": [[name, round(s, 4)] for name, s in end],
        },
    }


def seen(name: str, side: str, images: dict[str, str]) -> list[Host]:
    """Run a job again until the kernel has reported all its processes, at most TRIES times; return its hosts."""
    for left in reversed(range(TRIES)):
        try:
            return run(name, side, images)
        except Unseen as error:
            if not left:
                raise
            print(f"once more: {error}", file=sys.stderr, flush=True)
    raise AssertionError


def run(name: str, side: str, images: dict[str, str]) -> list[Host]:
    """Run one job, and return its hosts as reported by the kernel."""
    ours, floor, by_hand = CASES[name]
    job = Job(floor, by_hand, {**images, by_hand: images[TOOLKIT]}) if side == "floor" else Job(ours, OURS, images)
    job.usage.is_sampled = False  # it would take processor time
    with job, Kernel() as kernel:
        job.start()
        pids = job.pids()
        is_over, endings = job.wait(600), job.endings()
        if not is_over or any(ending.exit_code for ending in endings):
            raise SystemExit(f"{name}, {side}: a host failed:\n" + "".join(ending.log for ending in endings))
        shift = time.time() - time.monotonic()
        marks = [mark for mark in job.marks() if mark.what == "first"]
        lines = [[int((mark.value - shift) * 1e9) for mark in marks if mark.host == host] for host in job.hosts]
        return [Host(kernel.below(pid), of_host) for pid, of_host in zip(pids, lines, strict=True)]


def main() -> None:
    parser = machine.parser(__doc__, rounds=7, counted="counted ones, after one that is not")
    parser.add_argument("--image", default="sagemaker-tf-entrypoint:latest")
    parser.add_argument("--before", metavar="IMAGE", help="an older image of ours, which takes its turn, too")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    arguments = parser.parse_args()
    launchers = {"before": arguments.before, "ours": arguments.image} if arguments.before else {"ours": arguments.image}
    record = machine.head("profile")
    try:
        toolkit = peers.build_toolkit(arguments.image)
        for number in range(arguments.rounds + 1):
            for case in arguments.cases:
                for side in ("floor", *launchers):
                    hosts = seen(case, side, {OURS: launchers.get(side, arguments.image), TOOLKIT: toolkit})
                    if number:
                        head = {"case": case, "title": CASES[case][0].title, "hosts": len(hosts), "side": side}
                        machine.add(record, {**head, "round": number, **measured(case, side, hosts)}, arguments.json)
    finally:
        docker.remove_all()
    print(page(record))


if __name__ == "__main__":
    main()
