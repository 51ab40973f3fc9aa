"""Read the instance groups of a heterogeneous cluster, and decide which part each host takes in the job."""

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from entrypoint.base.errors import ConfigError, clip, show
from entrypoint.base.values import Value
from entrypoint.launcher.job import params
from entrypoint.launcher.job.cluster import Cluster, Part
from entrypoint.launcher.job.files import more_than_once

DISTRIBUTION = f"hyperparameter {params.DISTRIBUTION_INSTANCE_GROUPS}"
SERVERS = "ENTRYPOINT_PS_GROUPS"

# Families of AWS instances without accelerators, by their letters: c, m, r and so on, but not p, g, trn, inf or dl.
_CPU_ONLY = re.compile(r"ml\.[cmrtxizd][0-9]")


class Group(Value):
    """Hold the hosts of one instance type."""

    name: str
    instance_type: str
    hosts: tuple[str, ...]


def read_groups(resources: Mapping[str, Any], path: Path) -> tuple[Group, ...]:
    """Return the groups in resourceconfig.json; () in SageMaker's local mode and in old jobs."""
    listed = resources.get("instance_groups") or []
    if not isinstance(listed, list):
        raise ConfigError(f"{path} has instance_groups = {show(listed)}; wanted a list of groups")
    groups = tuple(_group(each, path) for each in listed)
    if twice := more_than_once([group.name for group in groups]):
        raise ConfigError(f"{path} names {show(twice[0])} more than once in instance_groups; wanted each group once")
    return groups


def _group(value: Any, path: Path) -> Group:
    name = value.get("instance_group_name") if isinstance(value, dict) else None
    hosts = value.get("hosts") if isinstance(value, dict) else None
    if not (isinstance(name, str) and isinstance(hosts, list) and all(isinstance(host, str) for host in hosts)):
        raise ConfigError(
            f"{path} has {show(value)} in instance_groups; wanted objects with instance_group_name and a list of hosts"
        )
    return Group(name=name, instance_type=str(value.get("instance_type") or ""), hosts=tuple(hosts))


def groups_of(counts: Iterable[tuple[str, str, int]]) -> tuple[Group, ...]:
    """Return groups of algo-1, algo-2 and so on, given each one's name, instance type and number of hosts."""
    names = (f"algo-{number}" for number in itertools.count(1))
    return tuple(
        Group(name=name, instance_type=type_, hosts=tuple(itertools.islice(names, count)))
        for name, type_, count in counts
    )


def resource_config(host: str, groups: Sequence[Group]) -> dict[str, Any]:
    """Return resourceconfig.json as SageMaker writes it on a host."""
    own = next(group for group in groups if host in group.hosts)
    return {
        "current_host": host,
        "current_instance_type": own.instance_type,
        "current_group_name": own.name,
        "hosts": sorted(name for group in groups for name in group.hosts),
        "instance_groups": [
            {"instance_group_name": each.name, "instance_type": each.instance_type, "hosts": list(each.hosts)}
            for each in groups
        ],
        "network_interface_name": "eth0",
    }


def parts(
    groups: Sequence[Group], hosts: Sequence[str], path: Path, training: Sequence[str], serving: Sequence[str]
) -> dict[str, Part]:
    """Return {host: part} if groups that train or serve are named; {} if not: then all hosts train.

    Groups that serve belong to the distribution, whether it names them or not. Raise ConfigError if a name does not
    fit.
    """
    if not (training or serving):
        return {}
    for names, where in ((training, DISTRIBUTION), (serving, SERVERS)):
        for name in names:
            _check_name(name, where, groups, path)
    _check_members(groups, hosts, path)
    found = {host: _part(group, training, serving) for group in groups for host in group.hosts}
    if Part.TRAINS not in found.values():
        raise ConfigError(f"{SERVERS} names every group that takes part; wanted one left for the chief and the workers")
    return found


def _part(group: Group, training: Sequence[str], serving: Sequence[str]) -> Part:
    if group.name in serving:
        return Part.SERVES
    return Part.TRAINS if group.name in training or not training else Part.OUTSIDE


def _check_name(name: str, where: str, groups: Sequence[Group], path: Path) -> None:
    named = next((group for group in groups if group.name == name), None)
    found = f"{where} names instance group {clip(repr(name))}"
    if named is None:
        listed = clip(", ".join(repr(group.name) for group in groups))
        raise ConfigError(f"{found}; wanted {f'one of {listed}' if groups else 'none, as there are none'} in {path}")
    if not named.hosts:
        raise ConfigError(f"{found}, which has no hosts in {path}; wanted one that has")


def _check_members(groups: Sequence[Group], hosts: Sequence[str], path: Path) -> None:
    """Raise ConfigError unless each host is in one group, and the groups have no other hosts."""
    members = [host for group in groups for host in group.hosts]
    for what, found in (
        ("in more than one group", more_than_once(members)),
        ("in no group", sorted(set(hosts) - set(members))),
        ("in a group and not among the hosts", sorted(set(members) - set(hosts))),
    ):
        if found:
            raise ConfigError(f"{path} has {show(found[0])} {what}; wanted each of its hosts in one group")


def accelerators(groups: Sequence[Group], cluster: Cluster, here: int) -> int | None:
    """Return the number of GPUs of each training host; None if this host cannot know it.

    `here` is the number of this host's GPUs. All hosts must make the same plan, and no host sees the GPUs of another
    instance type.
    """
    if len({group.instance_type for group in groups}) <= 1:
        return here
    training = {host.name for host in cluster.training}
    types = {group.instance_type for group in groups if training.intersection(group.hosts)}
    return 0 if all(_CPU_ONLY.match(each) for each in types) else None
