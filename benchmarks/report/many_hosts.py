"""Fill the page about many hosts on one machine: how each figure grows, and whether the aims at 1,000 are met."""

import math
from typing import Any

from benchmarks.many_hosts.aims import AIMED_AT, AIMS
from benchmarks.report.figures import Measured, Run, measured

PLOT = "many-hosts.svg"
LEFT_OUT = (  # of the page: parts of a plan, and the CPU time of all hosts, which share processes here and nowhere else
    "read_config_s", "plan_digest_s", "plan_mwms_digest_s", "plan_ps_digest_s", "rendezvous_cpu_s", "end_cpu_s",
)  # fmt: skip
MODEL = {"rendezvous_s": "rendezvous_coordinator_cpu_s", "told_all_s": "end_coordinator_cpu_s"}  # its own part


def by_hosts(runs: list[Run]) -> dict[str, dict[int, Measured]]:
    """Return {measure: {hosts: figure}}, hosts from few to many."""
    counts = sorted({run["hosts"] for run in runs})
    return {
        measure: {hosts: figure for hosts in counts if (figure := measured(runs, measure, hosts=hosts))}
        for measure in dict.fromkeys(name for run in runs for name in run["measures"])
    }


def modelled(found: dict[str, dict[int, Measured]], hosts: int) -> dict[str, float]:
    """Return what a measure would be, in seconds, if each host had a core: a few hosts' time and the coordinator's.

    The few have a core each, or nearly. Beyond them, only the coordinator's work grows with the number of hosts.
    """
    model = {}
    for measure, cpu in MODEL.items():
        figures, own = found.get(measure, {}), found.get(cpu, {}).get(hosts)
        few = next(iter(figures.values()), None)
        if hosts in figures and len(figures) > 1 and own and few and own.median is not None and few.median is not None:
            model[measure] = few.median + own.median
    return model


def exponent(figures: dict[int, Measured]) -> float | None:
    """Return p of the growth as hosts ** p, between the two largest counts. None: there are no two, or one is 0."""
    if len(figures) < 2:
        return None
    (few, before), (many, after) = list(figures.items())[-2:]
    if not (before.median and after.median):
        return None
    return math.log(after.median / before.median) / math.log(many / few)


def context(record: dict[str, Any]) -> dict[str, Any]:
    """Return what the page's template takes beside the record."""
    found = by_hosts(record["runs"])
    judged = []
    for measure, most in AIMS.items():
        figure = found.get(measure, {}).get(AIMED_AT)
        met = None if figure is None or figure.median is None else figure.median <= most
        judged.append({"measure": measure, "most": most, "figure": figure, "met": met})
    powers = {measure: exponent(figures) for measure, figures in found.items()}
    return {
        "found": found,
        "left_out": LEFT_OUT,
        "judged": judged,
        "modelled": modelled(found, AIMED_AT),
        "aimed_at": AIMED_AT,
        "plot": PLOT,
        "counts": sorted({run["hosts"] for run in record["runs"]}),
        "rounds": max((figure.runs for figures in found.values() for figure in figures.values()), default=0),
        "powers": {measure: "" if power is None else f"{round(power, 2) + 0:.2f}" for measure, power in powers.items()},
    }
