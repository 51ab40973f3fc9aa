"""What jobs of 100 to 10,000 hosts would do on hosts and a network of their own, and what would break first. Simulated.

    python -m benchmarks.many_hosts.model --json docs/benchmarks/many-hosts-model.json

The processor time of the control channel is measured first; then jobs are played, each in one process, with the real
policies. What is drawn (who is lost when) comes from the seeds; what is measured differs from run to run.
"""

import argparse
import math
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.many_hosts.model import costs, limits
from benchmarks.many_hosts.model.job import LONG, Case, planned, play
from benchmarks.report import pages

SIZES = (100, 300, 1000, 10_000)
SEEDS = {10_000: 2}  # 3 for others
STEADY = 30.0  # seconds at least; whole heartbeats, as those of all hosts come together
LOSSES = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2)
LATENCIES = (0.005, 0.05, 0.1)
WITH_RECORDS = (1000, 3000, 4000)
HOUR = 3600.0


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--hosts", type=int, nargs="+", help="play only jobs of these sizes, and look for no limits")
    options.add_argument("--seeds", type=int, help="for each size")
    options.add_argument("--json", type=Path, help="where to write the figures")
    given = options.parse_args()
    usual = Case(hosts=2)
    settings = {"latency_ms": 1000 * usual.latency, "loss_percent": 100 * usual.loss, "backlog": usual.backlog}
    record = machine.head("many-hosts-model", limits=settings)
    measured = costs.measure()
    record["costs"] = {name: value for name, value in asdict(measured).items() if name not in ("policy", "slower")}
    record["allowed"] = limits.allowed()
    for part, case in cases(given.hosts or SIZES, given.seeds, wanted=not given.hosts):
        found = {**play(case, measured), **limits.memory(case.hosts)}
        shown = {name: value for name, value in asdict(case).items() if value != getattr(usual, name) or name == "seed"}
        record["runs"].append({"part": part, **shown, "measures": found})
        print(f"{part} {shown}: " + ", ".join(f"{name} {value:.4g}" for name, value in found.items()), flush=True)
        if given.json:
            machine.write(given.json, record)
    record["machine"]["load_after"] = machine.load()
    print(pages.page(record))


def cases(sizes: tuple[int, ...], seeds: int | None, wanted: bool) -> Iterator[tuple[str, Case]]:
    """Yield what is played, and for which part of the page. `wanted`: limits, too."""
    many = 1000
    for hosts in sizes:
        for seed in range(1, 1 + (seeds or SEEDS.get(hosts, 3))):
            yield "sizes", Case(hosts=hosts, seed=seed, records=False, steady=steady(hosts))
    if not wanted:
        return
    for hosts in WITH_RECORDS:
        yield "records", Case(hosts=hosts, steady=steady(hosts) / 2)
    for loss in LOSSES:
        yield "loss", Case(hosts=many, records=False, loss=loss, steady=2 * LONG)
    for latency in LATENCIES:
        yield "latency", Case(hosts=many, records=False, latency=latency, steady=steady(many))
    yield "descriptors", Case(hosts=many, records=False, descriptors=1024, steady=steady(many))
    yield "backlog", Case(hosts=many, records=False, backlog=128, steady=steady(many))
    yield "hour", Case(hosts=many, records=False, steady=HOUR, fails=False)


def steady(hosts: int) -> float:
    heartbeat: Any = planned(hosts).job.settings.heartbeat
    return float(heartbeat * max(2, math.ceil(STEADY / heartbeat)))


if __name__ == "__main__":
    main()
