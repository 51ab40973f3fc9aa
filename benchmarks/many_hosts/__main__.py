"""Measure how the launcher grows: jobs of 10 to 1,000 hosts on one machine, with sockets of loopback.

    python -m benchmarks.many_hosts --json many-hosts.json

Each host has an address of its own (127.x.y.z), its own control channel and the launcher's own policy and loop. The
coordinator is a process of its own, and so is one follower; they run all of the launcher, with real processes (`true`
for the prepare step, `sleep` for the script). The other hosts share processes, where their children are stand-ins: see
worker.py. The machine bears the work of all hosts, each of which has its own processors in a real job.
"""

import gc
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.report import page
from entrypoint.launcher.job.config import read_job
from entrypoint.launcher.plan.fingerprint import fingerprint
from entrypoint.launcher.plan.planner import plan_for

ROOT = Path(__file__).resolve().parents[2]
SHARE = 25  # hosts of one process, about
SETTLE = 2.0  # seconds after the start before the steady state is looked at
LIMIT = 120.0  # seconds for anything
PLANNED = {"mpi": 8, "mwms": 1, "ps": 1}  # processes on each host, of the plans that are timed


def main() -> None:
    options = machine.parser(__doc__, rounds=3)
    options.add_argument("--hosts", type=int, nargs="+", default=[10, 100, 300, 1000])
    options.add_argument("--steady", type=float, default=5.0, help="seconds of the steady state that are measured")
    given = options.parse_args()
    record = machine.head("many-hosts", limits={"seconds": LIMIT, "steady_s": given.steady})
    for number in range(1, given.rounds + 1):
        for hosts in given.hosts:
            measures = one_round(hosts, number, given.steady)
            machine.add(record, {"hosts": hosts, "round": number, "measures": measures}, given.json)
    print(page(record))


def one_round(hosts: int, number: int, steady: float) -> dict[str, float]:
    dice = random.Random(f"{hosts} {number}")
    with tempfile.TemporaryDirectory(prefix="many-hosts-") as folder, ExitStack() as stack:
        base = Path(folder)
        names = [f"algo-{each + 1}" for each in range(hosts)]
        measures = plans(base, names)
        workers = [stack.enter_context(worker(base, hosts, first, count)) for first, count in shares(hosts)]
        coordinator, lone, *others = workers
        for each in workers:
            each.wait_for("up")
        idle = [each.ask(do="use") for each in workers]
        start = time.monotonic()
        for each in workers:
            each.tell(do="start")
        measures["rendezvous_s"] = max(each.wait_for("gone")["at"] for each in workers) - start

        met = [each.ask(do="use") for each in workers]
        measures["rendezvous_cpu_s"] = used(idle, met)
        measures["rendezvous_coordinator_cpu_s"] = used(idle[:1], met[:1])

        time.sleep(SETTLE)
        before = coordinator.ask(do="use")
        time.sleep(steady)
        after, follower = coordinator.ask(do="use"), lone.ask(do="use")
        seconds = after["at"] - before["at"]
        measures["requests_per_s"] = (after["heard"] - before["heard"]) / seconds
        measures["coordinator_cpu_share"] = (after["cpu"] - before["cpu"]) / seconds
        measures["coordinator_memory_bytes"], measures["memory_per_host_bytes"] = after["rss"], follower["rss"]

        running = [each.ask(do="use") for each in workers]
        where = dice.choice(others)
        failed = where.ask("failed", do="fail", host=dice.choice(sorted(names_of(where, names))))["at"]
        told = [each.wait_for("told")["at"] - failed for each in workers]
        measures["verdict_s"], measures["told_all_s"] = told[0], max(told)
        over = [each.wait_for("end") for each in workers]
        measures["end_cpu_s"], measures["end_coordinator_cpu_s"] = used(running, over), used(running[:1], over[:1])
        ends = [each.wait_for("finished") for each in workers]
        measures["all_ended_s"] = max(end["at"] for end in ends) - failed
        codes, texts = {code for end in ends for code in end["codes"]}, {text for end in ends for text in end["texts"]}
        if codes != {"1"} or len(texts) != 1:
            raise SystemExit(f"hosts disagree on the outcome: {codes}, {texts}")
    return measures


def used(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> float:
    """Return the CPU seconds that these hosts' processes used between two reports."""
    return float(sum(b["cpu"] - a["cpu"] for a, b in zip(before, after, strict=True)))


def plans(base: Path, names: list[str]) -> dict[str, float]:
    """Return the seconds for each kind of plan, and for the digest that hosts compare."""
    config = base / "input" / "config"
    config.mkdir(parents=True)
    resources = {"current_host": names[0], "hosts": names, "network_interface_name": "lo"}
    (config / "resourceconfig.json").write_text(json.dumps(resources))
    (config / "hyperparameters.json").write_text('{"sagemaker_program": "train.py"}')
    (base / "code").mkdir()
    (base / "code" / "train.py").write_text("")
    found = {}
    gc.disable()  # as the launcher does
    for mode, each in PLANNED.items():
        began = time.perf_counter()
        job = read_job(base, {"ENTRYPOINT_MODE": mode, "ENTRYPOINT_PROCESSES_PER_HOST": str(each)}, base / "run")
        read = time.perf_counter()
        plan = plan_for(job)
        planned = time.perf_counter()
        fingerprint(job, plan)
        name = "plan" if mode == "mpi" else f"plan_{mode}"
        found[f"{name}_s"], found[f"{name}_digest_s"] = planned - read, time.perf_counter() - planned
        if mode == "mpi":
            found["read_config_s"] = read - began
    gc.enable()
    return found


def shares(hosts: int) -> list[tuple[int, int]]:
    """Return (first, count) of the hosts of each process: the coordinator, one follower, and the others."""
    left = hosts - 2
    processes = -(-left // SHARE)
    edges = [2 + left * each // processes for each in range(processes + 1)]
    return [(0, 1), (1, 1), *((a, b - a) for a, b in itertools.pairwise(edges))]


def names_of(where: "Worker", names: list[str]) -> list[str]:
    ordered = sorted(names)
    return ordered[where.first : where.first + where.count]


class Worker:
    """A process that runs some hosts, with requests and answers as lines of JSON."""

    def __init__(self, process: "subprocess.Popen[str]", log: Path, first: int, count: int) -> None:
        self._process, self._log, self.first, self.count = process, log, first, count
        self._said: list[dict[str, Any]] = []

    def tell(self, **command: Any) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()

    def ask(self, answer: str = "use", **command: Any) -> dict[str, Any]:
        self.tell(**command)
        return self.wait_for(answer)

    def wait_for(self, what: str) -> dict[str, Any]:
        """Wait for a report of `what` from the process and return it; raise SystemExit after the time limit."""
        assert self._process.stdout
        too_late = threading.Timer(LIMIT, self._process.kill)  # which ends the line that is waited for
        too_late.start()
        try:
            while not any(said["what"] == what for said in self._said):
                line = self._process.stdout.readline()
                if not line:
                    log = self._log.read_text(errors="replace")[-3000:]
                    raise SystemExit(f"{log}\n{self.count} hosts from rank {self.first} on said no '{what}'")
                self._said.append(json.loads(line))
        finally:
            too_late.cancel()
        found = next(said for said in self._said if said["what"] == what)
        self._said.remove(found)
        return found


@contextmanager
def worker(base: Path, hosts: int, first: int, count: int) -> Iterator[Worker]:
    run = base / "run"
    run.mkdir(exist_ok=True)
    words = [
        "--base", str(base), "--run", str(run), "--network", f"127.{20 + os.getpid() % 200}",
        "--hosts", str(hosts), "--first", str(first), "--count", str(count),
    ]  # fmt: skip
    real = ["--real"] if count == 1 and first < 2 else []
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.many_hosts.worker", *words, *real],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Worker(process, run / f"log-{first}", first, count)
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    main()
