"""Make channels of numbered records for each way of sharing data, and list the records that processes must read.

A cell of the matrix is (one channel per local rank, with data of its own or the same data in each; or one for all) x
(FullyReplicated or ShardedByS3Key) x (File, FastFile or Pipe).
"""

import json
import struct
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from entrypoint.launcher.job.channels import Distribution, Wrapper
from entrypoint.simulate.local_channels import ChannelMode, LocalChannel
from sagemaker_tf_data.tfrecord import masked_crc32c

PASSES = 3
OWN, SAME, SHARED = "own", "same", "shared"
REPLICATED, SHARDED = Distribution.REPLICATED, Distribution.SHARDED
FILE, FAST_FILE, PIPE = ChannelMode.FILE, ChannelMode.FAST_FILE, ChannelMode.PIPE

Cell = tuple[str, Distribution, ChannelMode]

# One process reads one FIFO: on hosts that train with two, no shared channel can be a pipe.
CELLS: list[Cell] = [
    (sharing, distribution, mode)
    for mode in (FILE, FAST_FILE, PIPE)
    for sharing in (OWN, SAME, SHARED)
    for distribution in (REPLICATED, SHARDED)
    if (sharing, mode) != (SHARED, PIPE)
]


def name_of(cell: Cell) -> str:
    """Return the script's name for the channel or the group."""
    sharing, distribution, mode = cell
    return f"{sharing}-{'part' if distribution is SHARDED else 'all'}-{mode.lower()}"


@dataclass
class DataSet:
    """Channels of the selected cells, for hosts with two training processes each."""

    channels: list[LocalChannel] = field(default_factory=list)
    ids: dict[str, list[int]] = field(default_factory=dict)  # by name of the cell: all that it holds

    @property
    def names(self) -> str:
        return ",".join(self.ids)

    @property
    def groups(self) -> str:
        """Return ENTRYPOINT_CHANNEL_GROUPS."""
        return ",".join(f"{name}=same" for name in self.ids if name.startswith(SAME))

    @property
    def words(self) -> list[str]:
        """Return the channels as words of a command line."""
        found = []
        for channel in self.channels:
            options = {"mode": channel.mode, "distribution": channel.distribution, "wrapper": channel.wrapper}
            options |= {} if channel.shuffle is None else {"shuffle": channel.shuffle}
            text = "".join(f",{name}={value}" for name, value in options.items())
            found += ["--channel", f"{channel.name}={channel.source}{text}"]
        return found

    def missing_and_double(self, read: Iterable[Path]) -> dict[str, str]:
        """Return missing and repeated records by cell and pass, {} if none, from files that processes wrote."""
        found: dict[str, list[Counter[int]]] = {name: [Counter() for _ in range(PASSES)] for name in self.ids}
        for path in read:
            for name, passes in json.loads(path.read_text()).items():
                assert len(passes) == PASSES, f"{path}: {name} was read {len(passes)} times"
                for number, ids in enumerate(passes):
                    found[name][number].update(ids)
        return {
            f"{name}, pass {number}": f"missing {sorted((wanted - seen).elements())}, "
            f"too often {sorted((seen - wanted).elements())}"
            for name, passes in found.items()
            for number, seen in enumerate(passes)
            if seen != (wanted := Counter(self.ids[name]))
        }


def make(folder: Path, cells: Iterable[Cell]) -> DataSet:
    """Write the data and describe its channels. No size is divisible by the number of processes."""
    first = tfrecords(folder / "first", [13, 7, 1, 20, 6], 0)
    second = tfrecords(folder / "second", [2, 9, 4], 100)
    _objects(folder / "one", 9, 200)
    _objects(folder / "two", 4, 300)
    data = DataSet()
    for cell in cells:
        sharing, distribution, mode = cell
        name = name_of(cell)
        wrapped = cell == (OWN, REPLICATED, PIPE)  # one cell whose records are objects
        options = {"mode": mode, "distribution": distribution}
        options |= {"shuffle": 7} if mode is PIPE and sharing == SAME else {}
        options |= {"wrapper": Wrapper.RECORD_IO} if wrapped else {}
        sources = ["one", "two"] if wrapped else ["first", "first" if sharing == SAME else "second"]
        if sharing == SHARED:
            data.channels.append(LocalChannel(name=name, source=folder / "first", **options))
        else:
            data.channels += [
                LocalChannel(name=f"{name}-{number}", source=folder / source, **options)
                for number, source in enumerate(sources, 1)
            ]
        own = [*range(200, 209), *range(300, 304)] if wrapped else first + second
        data.ids[name] = own if sharing == OWN else first
    return data


def tfrecords(folder: Path, records: list[int], start: int) -> list[int]:
    """Write TFRecord files with the given numbers of records, each a number; return all numbers."""
    folder.mkdir(parents=True, exist_ok=True)
    number = start
    for file, count in enumerate(records):
        lines = [tfrecord(str(number + each).encode()) for each in range(count)]
        (folder / f"part-{file}.tfrecord").write_bytes(b"".join(lines))
        number += count
    return list(range(start, number))


def _objects(folder: Path, count: int, start: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(start, start + count):
        (folder / str(number)).write_text(str(number))


def tfrecord(content: bytes) -> bytes:
    """Return a TFRecord: length, content, and a checksum of each."""
    length = struct.pack("<Q", len(content))
    of_length, of_content = (struct.pack("<I", masked_crc32c(each)) for each in (length, content))
    return length + of_length + content + of_content
