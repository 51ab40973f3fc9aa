"""What the launcher and Linux allow, whatever the processors do; and what was measured of memory, with real hosts."""

import functools
import json
from pathlib import Path

from benchmarks.many_hosts.model.coordinator import BASE
from benchmarks.many_hosts.model.job import Case, planned
from benchmarks.report.many_hosts import by_hosts
from entrypoint.launcher.job import config, files
from entrypoint.launcher.plan.plan import Duty

ENTRY = 128 << 10  # bytes of one entry of an environment, of Linux (execve(2))
FEW_DESCRIPTORS = 1024  # the soft limit of a login, and of a service that asks for none
REAL = Path(__file__).resolve().parents[3] / "docs" / "benchmarks" / "many-hosts.json"


def allowed() -> dict[str, int]:
    """Return how many hosts each lets a job have."""
    plan = planned(1000)
    script = next(spec for specs in plan.rows.values() for spec in specs if spec.duty is Duty.SCRIPT)
    each = len(script.environment(())["TF_CONFIG"]) / len(plan.rows)
    return {
        "max_hosts": files.MAX_HOSTS,
        "max_tasks": config.MAX_TASKS,
        "tf_config": int(ENTRY / each),
        "links": FEW_DESCRIPTORS // 2 - BASE + 1,
        "backlog": Case(hosts=2).backlog + 1,
    }


@functools.cache
def memory(hosts: int) -> dict[str, float]:
    """Return what the coordinator's launcher and a follower's would take, as real ones of 300 and 1,000 hosts did."""
    real = by_hosts(json.loads(REAL.read_text())["runs"])
    found = {}
    for name in ("coordinator_memory_bytes", "memory_per_host_bytes"):
        few, many = (real[name][count].median or 0.0 for count in (300, 1000))
        found[name] = many + (hosts - 1000) * (many - few) / 700
    return found
