"""Compare what jobs have seen of SageMaker with what this project believes of it. Values in, values out."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from accept.judging import Ran, objects_after

Facts = dict[str, dict[str, Any]]  # by host, then by name


@dataclass(frozen=True)
class Belief:
    """What we believe. `check`: returns value and verdict from one host's facts. `source`: why we believe it."""

    text: str
    check: Callable[[Mapping[str, Any]], tuple[Any, bool]]
    source: str


@dataclass(frozen=True)
class Found:
    """A belief, and what was found of it on some hosts or jobs. `so`: whether they agree; None if it was not seen."""

    text: str
    source: str
    found: str
    so: bool | None


GUIDE = "SageMaker's guide"
SEEN = "logs of public jobs, 2019 to 2025"
UNKNOWN = "documented nowhere"


def equal(name: str, wanted: Any) -> Callable[[Mapping[str, Any]], tuple[Any, bool]]:
    """Return a check that a fact has a value."""
    return lambda facts: (facts[name], facts[name] == wanted)


def variable(name: str, pattern: str) -> Callable[[Mapping[str, Any]], tuple[Any, bool]]:
    """Return a check that a variable of process 1 matches."""

    def check(facts: Mapping[str, Any]) -> tuple[Any, bool]:
        value = facts["environment"].get(name)
        return value, value is not None and re.fullmatch(pattern, value) is not None

    return check


def _key(
    name: str, wanted: Callable[[Any, Mapping[str, Any]], bool]
) -> Callable[[Mapping[str, Any]], tuple[Any, bool]]:
    def check(facts: Mapping[str, Any]) -> tuple[Any, bool]:
        value = facts["resourceconfig"].get(name, "no such key")
        return value, wanted(value, facts)

    return check


def _hostname(facts: Mapping[str, Any]) -> tuple[Any, bool]:
    return facts["hostname"], facts["hostname"] != facts["host"]


def _interface(facts: Mapping[str, Any]) -> tuple[Any, bool]:
    name = facts["resourceconfig"].get("network_interface_name")
    return [name, facts["interfaces"]], name in facts["interfaces"]


def _none_of_ours(facts: Mapping[str, Any]) -> tuple[Any, bool]:
    names = sorted(name for name in facts["environment"] if name.startswith("SM_"))
    return names, not names


def _names(facts: Mapping[str, Any]) -> tuple[Any, bool]:
    return facts["names-s"], all(waited is not None for waited in facts["names-s"].values())


def _shared_memory(facts: Mapping[str, Any]) -> tuple[Any, bool]:
    size = facts["sizes"].get("/dev/shm", 0)
    return f"{size / 2**20:.0f} MiB", size >= 64 * 2**20


def _folders(facts: Mapping[str, Any]) -> tuple[Any, bool]:
    return facts["opt-ml"], {"/opt/ml/input/config", "/opt/ml/input/data", "/opt/ml/output/data"} <= set(
        facts["opt-ml"]
    )


def _whole_machine(facts: Mapping[str, Any]) -> tuple[Any, bool]:
    return [facts["cpus"], facts["cgroup"]], facts["cpus"][0] == facts["cpus"][1]


BELIEFS = (
    Belief("processes run as root", equal("user", [0, 0]), SEEN),
    Belief("process 1 starts in /", equal("working-folder", "/"), SEEN),
    Belief("hosts are sorted by name", _key("hosts", lambda value, _: value == sorted(value)), GUIDE),
    Belief("current_host is one of hosts", _key("current_host", lambda v, f: v in f["resourceconfig"]["hosts"]), GUIDE),
    Belief(
        "current_group_name is homogeneousCluster",
        _key("current_group_name", lambda v, _: v == "homogeneousCluster"),
        SEEN,
    ),
    Belief(
        "current_instance_type begins with ml.",
        _key("current_instance_type", lambda v, _: str(v).startswith("ml.")),
        SEEN,
    ),
    Belief("topology is null", _key("topology", lambda value, _: value is None), SEEN),
    Belief("the named network interface exists", _interface, GUIDE),
    Belief("the hostname is not the host's name", _hostname, SEEN),
    Belief("the names of the other hosts resolve", _names, GUIDE),
    Belief("TRAINING_JOB_NAME is set", variable("TRAINING_JOB_NAME", ".+"), GUIDE),
    Belief("TRAINING_JOB_ARN is set", variable("TRAINING_JOB_ARN", "arn:.+"), GUIDE),
    Belief("AWS_REGION is set", variable("AWS_REGION", ".+"), SEEN),
    Belief(
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI is set",
        variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "set"),
        SEEN,
    ),
    Belief("SageMaker sets no SM_*", _none_of_ours, "AWS's toolkit, which sets them"),
    Belief("/dev/shm has at least 64 MiB", _shared_memory, "Docker's default; issues of the SDK"),
    Belief("the folders of /opt/ml are there", _folders, GUIDE),
    Belief("a job may use all processors of its machine", _whole_machine, UNKNOWN),
)


def facts_of(ran: Ran) -> Facts:
    """Return the facts that a job's hosts have printed, by host."""
    found: Facts = {}
    for host in dict.fromkeys(each for each, _, _ in ran.log):
        own = objects_after([line for line in ran.log if line[0] == host], "accept-fact")
        found[host] = {each["name"]: each["value"] for each in own}
    return found


def compare(jobs: Mapping[str, Ran]) -> list[Found]:
    """Return all beliefs with what the jobs, by the names of their cases, have seen."""
    found = [of_hosts(belief, facts_of(jobs["single"]) if "single" in jobs else {}) for belief in BELIEFS]
    return found + list(of_jobs(jobs))


def of_hosts(belief: Belief, facts: Facts) -> Found:
    """Return what the hosts' facts show about a belief."""
    told = []
    for host, each in facts.items():
        try:
            told.append((host, *belief.check(each)))
        except (KeyError, IndexError, TypeError):  # this host has not printed it
            continue
    if not told:
        return Found(belief.text, belief.source, "not seen", None)
    values = {json.dumps(value, sort_keys=True) for _, value, _ in told}
    shown = values.pop() if len(values) == 1 else json.dumps({host: value for host, value, _ in told}, sort_keys=True)
    return Found(belief.text, belief.source, shown, all(so for *_, so in told))


def of_jobs(jobs: Mapping[str, Ran]) -> Iterator[Found]:
    """Yield what the jobs without our launcher have seen of termination."""
    grace = [seconds for _, seconds in numbers(jobs.get("grace"), r"accept-since-sigterm ([\d.]+)")]
    text = "SIGKILL comes 120 s after SIGTERM"
    yield Found(
        text,
        GUIDE,
        f"after {max(grace):.0f} s or a little more" if grace else "not seen",
        110 < max(grace) < 125 if grace else None,
    )
    for name, word, survives in (("peer-fails", "fails", False), ("peer-ends", "ends with 0", True)):
        ran = jobs.get(name)
        lived = [seconds for host, seconds in numbers(ran, r"accept-alive (\d+) s") if host == "algo-1"]
        left = [seconds for host, seconds in numbers(ran, r"accept-alive (\d+) s") if host == "algo-2"]
        text = f"when a host {word}, the other " + ("goes on" if survives else "is ended by SageMaker")
        if not lived or not left:
            yield Found(text, UNKNOWN, "not seen", None)
            continue
        more = max(lived) - max(left)
        warned = bool(ran and any(host == "algo-1" for host, _ in numbers(ran, r"accept-since-sigterm ([\d.]+)")))
        shown = f"it lived {more:.0f} s more, {'after' if warned else 'without'} SIGTERM"
        ended = warned or more < 200  # seconds; bare.py lives 230 s longer than the host that leaves
        yield Found(text, UNKNOWN, shown, ended is not survives)


def numbers(ran: Ran | None, pattern: str) -> list[tuple[str, float]]:
    """Return host and number of each line that matches."""
    rows: Sequence[tuple[str, float, str]] = ran.log if ran else ()
    return [(host, float(met[1])) for host, _, text in rows if (met := re.search(pattern, text))]
