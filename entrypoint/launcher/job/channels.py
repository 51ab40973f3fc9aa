"""Decide which process reads which records of each channel: groups of channels, the matrix, ENTRYPOINT_SHARDS.

Pure. All training processes of a host share a channel, or each has a channel of its own out of a group: channels called
train, train-1, train-2 ..., as many as a host has training processes. Together they read every record once. A process
reads:

    one channel per local rank, ShardedByS3Key    the whole channel
    one channel per local rank, FullyReplicated   the host's shard, of as many shards as hosts
    shared, ShardedByS3Key                        the local rank's shard, of as many shards as local ranks
    shared, FullyReplicated                       the rank's shard, of as many shards as ranks

Channels of a group that all hold the same data are read like one shared channel.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

from entrypoint.base.errors import ConfigError, clip, show
from entrypoint.base.python310 import StrEnum
from entrypoint.base.remedies import REMEDIES
from entrypoint.base.values import Value
from entrypoint.launcher.job.choices import ChannelGroup

SHARDS = "ENTRYPOINT_SHARDS"  # environment variable of every process that reads: the result of `shards` as JSON

_Kind = TypeVar("_Kind", bound=StrEnum)
_NUMBERED = re.compile(r"(.*[^-_0-9])[-_]?([0-9]{1,3})", re.DOTALL)


class InputMode(StrEnum):
    FILE = "File"  # SageMaker uses this name for FastFile, too
    PIPE = "Pipe"


class Distribution(StrEnum):
    REPLICATED = "FullyReplicated"
    SHARDED = "ShardedByS3Key"


class Wrapper(StrEnum):
    NONE = "None"
    RECORD_IO = "RecordIO"


class Channel(Value):
    """Describe a channel as inputdataconfig.json does. The defaults stand for keys that local mode leaves out."""

    name: str
    mode: InputMode = InputMode.FILE
    distribution: Distribution = Distribution.REPLICATED
    wrapper: Wrapper = Wrapper.NONE


class Reader(Value):
    """Hold a training process's place, which determines its shards.

    `hosts`: the number of hosts with its local rank.
    """

    size: int
    rank: int
    local_size: int
    local_rank: int
    hosts: int
    host_index: int
    most: int  # the largest local size of all hosts: a group has this many channels

    def at(self, host: int, size: int, rank: int, local_size: int, local_rank: int) -> "Reader":
        """Return the reader of another place, on host number `host`; return this reader for its planned place."""
        planned = (self.size, self.rank, self.local_size, self.local_rank, self.host_index)
        if planned == (size, rank, local_size, local_rank, host):
            return self
        hosts = -(-size // local_size)
        return Reader(
            size=size, rank=rank, local_size=local_size, local_rank=local_rank,
            hosts=hosts, host_index=host % hosts, most=local_size,
        )  # fmt: skip


class Source(Value):
    """Name one channel that all processes of a host share, or a group with one channel for each process."""

    name: str
    channels: tuple[Channel, ...]
    own_data: bool = False  # each channel of the group has data of its own

    @property
    def shard_of(self) -> str:
        """Return which number selects the shard: of the "host", the "local rank" or the "rank", or "nothing"."""
        sharded = self.channels[0].distribution is Distribution.SHARDED
        if self.own_data:
            return "nothing" if sharded else "host"
        return "local rank" if sharded else "rank"

    def part(self, reader: Reader) -> tuple[Channel, int, int]:
        """Return what a reader gets of the source: (channel, number of its shards, index of the reader's shard)."""
        return (self.channels[reader.local_rank % len(self.channels)], *_SHARDS[self.shard_of](reader))


_SHARDS: dict[str, Callable[[Reader], tuple[int, int]]] = {
    "nothing": lambda reader: (1, 0),
    "host": lambda reader: (reader.hosts, reader.host_index),
    "local rank": lambda reader: (reader.local_size, reader.local_rank),
    "rank": lambda reader: (reader.size, reader.rank),
}


class Channels(Value):
    """Hold all channels of a host and the settings about groups. Hosts of other instance groups may differ."""

    all: tuple[Channel, ...] = ()
    groups: tuple[tuple[str, ChannelGroup], ...] = ()  # (stem, or "" for all groups; what they hold)

    def shards(self, reader: Reader | None) -> dict[str, dict[str, Any]]:
        """Return the shards that a process reads, by source.

        A process that does not train reads each channel completely.
        """
        if reader is None:
            parts = {channel.name: (channel, 1, 0) for channel in self.all}
        else:
            parts = {source.name: source.part(reader) for source in sources(self, reader.most)}
        return {
            name: {"channel": channel.name, "mode": str(channel.mode), "count": count, "index": index}
            for name, (channel, count, index) in parts.items()
        }


def read_channels(
    found: Mapping[str, Any], where: object, groups: tuple[tuple[str, ChannelGroup], ...] = ()
) -> Channels:
    """Read inputdataconfig.json, which lies at `where`. Raise ConfigError if a channel is described wrongly."""
    return Channels(all=tuple(_channel(name, found[name], where) for name in sorted(found)), groups=groups)


def _channel(name: str, value: Any, where: object) -> Channel:
    if "=" in name:
        raise ConfigError(f"{where} has channel {show(name)}; wanted no = in it: it becomes SM_CHANNEL_<NAME>")
    value = {} if value is None else value
    if not isinstance(value, dict):
        raise ConfigError(f"{where} has {show(value)} for channel {show(name)}; wanted an object")

    def read(key: str, default: _Kind) -> _Kind:
        kinds = type(default)
        text = default if value.get(key) is None else value[key]
        if text not in list(kinds):
            found = f"{where} has {key} = {show(text)} for channel {show(name)}"
            raise ConfigError(f"{found}; wanted {' or '.join(kinds)}")
        return kinds(text)

    return Channel(
        name=name,
        mode=read("TrainingInputMode", InputMode.FILE),
        distribution=read("S3DistributionType", Distribution.REPLICATED),
        wrapper=read("RecordWrapperType", Wrapper.NONE),
    )


# --- who reads ---


def readers(hosts: Sequence[str]) -> list[Reader]:
    """Return a Reader for each training process, given the names of their hosts in rank order."""
    local_ranks = _occurrences(hosts)
    host_indexes = _occurrences(local_ranks)  # each host has a local rank once
    local_sizes, peers = Counter(hosts), Counter(local_ranks)
    most = max(local_sizes.values(), default=1)
    return [
        Reader(
            size=len(hosts),
            rank=rank,
            local_size=local_sizes[host],
            local_rank=local_rank,
            hosts=peers[local_rank],
            host_index=host_index,
            most=most,
        )
        for rank, (host, local_rank, host_index) in enumerate(zip(hosts, local_ranks, host_indexes, strict=True))
    ]


def _occurrences(values: Sequence[Any]) -> list[int]:
    """Return how often each value occurred before it."""
    before: Counter[Any] = Counter()
    found = []
    for value in values:
        found.append(before[value])
        before[value] += 1
    return found


# --- groups ---


@cache
def sources(channels: Channels, most: int) -> tuple[Source, ...]:
    """Return the groups and the single channels, sorted by name. `most`: the training processes of a host."""
    kinds = dict(channels.groups)
    families: dict[str, list[tuple[int, Channel]]] = defaultdict(list)
    for channel in channels.all:
        stem, number = stem_of(channel.name)
        families[stem].append((number, channel))
    found = []
    for stem, family in families.items():
        family.sort(key=lambda member: member[0])
        kind = kinds.get(stem, kinds.get("", ChannelGroup.OWN))
        members = tuple(channel for _, channel in family)
        alike = len({(each.mode, each.distribution, each.wrapper) for each in members}) == 1
        is_group = kind is not ChannelGroup.OFF and len(members) == most > 1 and alike
        if is_group and _without_gaps([number for number, _ in family]):
            found.append(Source(name=stem, channels=members, own_data=kind is ChannelGroup.OWN))
        else:
            found += [Source(name=channel.name, channels=(channel,)) for channel in members]
    return tuple(sorted(found, key=lambda source: source.name))


def stem_of(name: str) -> tuple[str, int]:
    """Split a name into stem and number: `train-2`, `train_2` and `train2` are (train, 2); `train` is (train, -1)."""
    match = _NUMBERED.fullmatch(name)
    return (match[1], int(match[2])) if match else (name, -1)


def _without_gaps(numbers: list[int]) -> bool:
    """Return whether numbers count up from the start of a group. Two years, such as 2023 and 2024, do not.

    Groups are train, train-1, ... or train, train-2, ... or train-0, train-1, ... or train-1, train-2, ...
    """
    bare = numbers[0] == -1
    numbered = numbers[bare:]
    return numbered[0] in ((0, 1, 2) if bare else (0, 1)) and numbered == [*range(numbered[0], numbered[-1] + 1)]


# --- for people ---


def matrix(channels: Channels, training: Sequence[Reader]) -> list[dict[str, Any]]:
    """Describe each source, and how the training processes share it. Without training processes, each reads it all."""
    most = training[0].most if training else 1
    return [
        {
            "name": source.name,
            "channels": [channel.name for channel in source.channels],
            "mode": str(source.channels[0].mode),
            "distribution": str(source.channels[0].distribution),
            "own_data": source.own_data,
            "shard_of": source.shard_of if training else "nothing",
            "shards": sorted({_SHARDS[source.shard_of](reader)[0] for reader in training}) or [1],
        }
        for source in sources(channels, most)
    ]


def matrix_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the result of `matrix` as text."""
    lines = []
    for row in rows:
        names, of = ", ".join(row["channels"]), " or ".join(map(str, row["shards"]))
        data = "data of its own" if row["own_data"] else "the same data"
        shared = "shared" if len(row["channels"]) == 1 else f"one per local rank ({names}), {data} in each"
        whole = row["shard_of"] == "nothing" or row["shards"] == [1]
        part = "all of it" if whole else f"the shard of its {row['shard_of']}, of {of}"
        lines.append(f"  {row['name']:<12} {row['mode']}, {row['distribution']}; {shared}; each process reads {part}")
    return lines


def reads(shards: Mapping[str, Mapping[str, Any]]) -> str:
    """Describe, as text, the channels and shards that a process reads."""
    parts = [(each["channel"], each["count"], each["index"]) for each in shards.values()]
    return "; ".join(f"{name}, " + ("all" if of == 1 else f"shard {index} of {of}") for name, of, index in parts)


def complaints(channels: Channels, training: Mapping[str, Sequence[Reader]]) -> list[str]:
    """Return warnings about channels that will not be read as expected. `training`: the readers of each host."""
    of_all = [reader for group in training.values() for reader in group]
    if not of_all:
        return []
    found = []
    most, confirmed = of_all[0].most, dict(channels.groups)
    for source in sources(channels, most):
        first, name, wanted = source.channels[0], source.name, len(source.channels)
        if wanted == 1 < most and first.mode is InputMode.PIPE:
            found.append(
                f"channel {name} is a pipe, which one process of a host can read, and up to {most} train there; "
                f"wanted {REMEDIES['pipe-shared'].replace('${channel}', name)}"
            )
        short = [host for host, group in training.items() if len(group) < wanted]
        if short and first.distribution is Distribution.SHARDED and (wanted == 1 or source.own_data):
            found.append(
                f"channel {name} is ShardedByS3Key, and not all of the part of {clip(', '.join(short))} is read: "
                f"wanted FullyReplicated, or {wanted} or more processes that train there (a chief does with TF1 only)"
            )
    unsure = [each for each in sources(channels, most) if each.own_data and not {each.name, ""} & confirmed.keys()]
    if unsure:  # inputdataconfig.json has no S3 paths, so nothing else shows whether the data are the same
        groups = "; ".join(", ".join(channel.name for channel in source.channels) for source in unsure)
        same, own = (
            ",".join(f"{source.name}={kind}" for source in unsure) for kind in (ChannelGroup.SAME, ChannelGroup.OWN)
        )
        found.append(
            f"each process of a host reads one channel of a group ({groups}). If these hold different data, set "
            f"ENTRYPOINT_CHANNEL_GROUPS={own} to confirm. If all have one S3 path, every process reads all of it: set "
            f"ENTRYPOINT_CHANNEL_GROUPS={same}, and in a script that shards by itself use shard(ranks, rank)"
        )
    stems = {stem_of(channel.name)[0] for channel in channels.all}
    found += [
        f"ENTRYPOINT_CHANNEL_GROUPS names {show(stem)}, and no group of channels is called so"
        for stem, _ in channels.groups
        if stem and stem not in stems
    ]
    return found
