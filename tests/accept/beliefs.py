"""Compare facts that jobs found on SageMaker with this project's beliefs about it. Pure: values in, values out."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from accept.judging import Ran, objects_after

Facts = dict[str, dict[str, Any]]  # by host, then by name


@dataclass(frozen=True)
class Belief:
    """A belief: `holds` checks the value that `sees` takes from a host's facts. `source`: the reason for the belief."""

    text: str
    sees: Callable[[Mapping[str, Any]], Any]
    holds: Callable[[Any], bool]
    source: str


@dataclass(frozen=True)
class Found:
    """A belief with facts about it from hosts or jobs. `so`: whether they agree; None without facts."""

    text: str
    source: str
    found: str
    so: bool | None


GUIDE = "SageMaker's guide"
SEEN = "logs of public jobs, 2019 to 2025"
UNKNOWN = "documented nowhere"
FOLDERS = {"/opt/ml/input/config", "/opt/ml/input/data", "/opt/ml/output/data"}


def named(*names: str) -> Callable[[Mapping[str, Any]], Any]:
    """Return a function that takes the named facts from a host's: one value, or a list."""
    return lambda facts: [facts[name] for name in names] if len(names) > 1 else facts[names[0]]


def key(name: str) -> Callable[[Mapping[str, Any]], Any]:
    """Return a function that takes the value of a key of resourceconfig.json from a host's facts."""
    return lambda facts: facts["resourceconfig"].get(name, "no such key")


def is_set(name: str, source: str, pattern: str = ".+") -> Belief:
    """Return the belief that process 1 has a variable whose value matches."""
    return Belief(
        f"{name} is set",
        lambda facts: facts["environment"].get(name),
        lambda value: bool(re.fullmatch(pattern, value or "")),
        source,
    )


BELIEFS = (
    Belief("processes run as root", named("user"), lambda user: user == [0, 0], SEEN),
    Belief("process 1 starts in /", named("working-folder"), lambda folder: folder == "/", SEEN),
    Belief("hosts are sorted by name", key("hosts"), lambda hosts: hosts == sorted(hosts), GUIDE),
    Belief(
        "current_host is one of hosts",
        lambda facts: [key("current_host")(facts), key("hosts")(facts)],
        lambda seen: seen[0] in seen[1],
        GUIDE,
    ),
    Belief(
        "current_group_name is homogeneousCluster",
        key("current_group_name"),
        lambda name: name == "homogeneousCluster",
        SEEN,
    ),
    Belief(
        "current_instance_type begins with ml.",
        key("current_instance_type"),
        lambda kind: str(kind).startswith("ml."),
        SEEN,
    ),
    Belief("topology is null", key("topology"), lambda topology: topology is None, SEEN),
    Belief(
        "the named network interface exists",
        lambda facts: [key("network_interface_name")(facts), facts["interfaces"]],
        lambda seen: seen[0] in seen[1],
        GUIDE,
    ),
    Belief("the hostname is not the host's name", named("hostname", "host"), lambda seen: seen[0] != seen[1], SEEN),
    Belief("the names of the other hosts resolve", named("names-s"), lambda waits: None not in waits.values(), GUIDE),
    is_set("TRAINING_JOB_NAME", GUIDE),
    is_set("TRAINING_JOB_ARN", GUIDE, "arn:.+"),
    is_set("AWS_REGION", SEEN),
    is_set("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", SEEN, "set"),
    Belief(
        "SageMaker sets no SM_*",
        lambda facts: sorted(name for name in facts["environment"] if name.startswith("SM_")),
        lambda names: not names,
        "AWS's toolkit, which sets them",
    ),
    Belief(
        "/dev/shm has at least 64 MiB",
        lambda facts: f"{facts['sizes'].get('/dev/shm', 0) / 2**20:.0f} MiB",
        lambda size: int(size.split()[0]) >= 64,
        "Docker's default; issues of the SDK",
    ),
    Belief("the folders of /opt/ml are there", named("opt-ml"), lambda folders: set(folders) >= FOLDERS, GUIDE),
    Belief(
        "a job may use all processors of its machine",
        named("cpus", "cgroup"),
        lambda seen: seen[0][0] == seen[0][1],
        UNKNOWN,
    ),
)


def facts_of(ran: Ran) -> Facts:
    """Return the facts that a job's hosts have printed, by host."""
    found: Facts = {}
    for host in dict.fromkeys(each for each, _, _ in ran.log):
        own = objects_after([line for line in ran.log if line[0] == host], "accept-fact")
        found[host] = {each["name"]: each["value"] for each in own}
    return found


def compare(jobs: Mapping[str, Ran]) -> list[Found]:
    """Return all beliefs with the facts of the jobs, which are given by the names of their cases."""
    found = [of_hosts(belief, facts_of(jobs["single"]) if "single" in jobs else {}) for belief in BELIEFS]
    return found + list(of_jobs(jobs))


def of_hosts(belief: Belief, facts: Facts) -> Found:
    """Return a belief with the hosts' facts about it."""
    told = []
    for host, each in facts.items():
        try:
            value = belief.sees(each)
            told.append((host, value, belief.holds(value)))
        except (KeyError, IndexError, TypeError):  # this host has not printed it
            continue
    if not told:
        return Found(belief.text, belief.source, "not seen", None)
    values = {json.dumps(value, sort_keys=True) for _, value, _ in told}
    shown = values.pop() if len(values) == 1 else json.dumps({host: value for host, value, _ in told}, sort_keys=True)
    return Found(belief.text, belief.source, shown, all(so for *_, so in told))


def of_jobs(jobs: Mapping[str, Ran]) -> Iterator[Found]:
    """Yield the beliefs about termination with facts of the jobs without our launcher."""
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
