"""Take a sample of each channel: the first records of its files, in proportion to their sizes."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from entrypoint.base.errors import ConfigError
from entrypoint.check.rehearse.cut_records import RecordKind, cut
from entrypoint.check.rehearse.data_sources import DataFile, Origin
from entrypoint.simulate.local_channels import ChannelMode, LocalChannel

RECORDS = 2000
MOST_BYTES = 512 << 20  # of a channel's sample: each host gets a copy


@dataclass(frozen=True, kw_only=True)
class ChannelSample:
    """Describe a part of one channel. Its files represent the channel's, and are distributed in the same way."""

    channel: LocalChannel  # the channel with the sample as its data
    where: str  # place of the whole channel
    kind: str  # TFRecord, RecordIO, lines, whole files; several are joined by +
    records: int
    files: int
    of_files: int
    size: int  # bytes of the channel that were taken
    of_size: int
    listed: bool = True  # whether all files of the channel were listed
    left_out: int = 0  # files that are too large to be taken whole
    no_data: tuple[str, ...] = ()  # as in Origin

    @property
    def part(self) -> float:
        """Return the sample's share of the channel in bytes, from 0 to 1."""
        return min(1.0, self.size / self.of_size) if self.of_size else 1.0


def take(origin: Origin, records: int, most_bytes: int = MOST_BYTES) -> ChannelSample:
    """Copy about so many records of a channel into the folder of its sample; each chosen file gives at least one."""
    folder = origin.asked.source
    chosen = spread(origin.files, records)
    total = sum(file.size for file in chosen)
    kinds: dict[RecordKind, None] = {}
    taken = number = left_out = 0
    for file in chosen:
        target = folder / file.key
        if folder not in target.parents or ".." in target.parts:
            raise ConfigError(f"channel {origin.asked.name}: key {file.key!r} leads out of its folder")
        target.parent.mkdir(parents=True, exist_ok=True)
        if not file.size:
            target.touch()
            continue
        share = max(1, round(records * file.size / total)) if total else 1
        with file.open() as source, target.open("wb") as copy:
            kind, found, size = cut(source, copy, file.key, share, most_bytes - taken)
        if kind is RecordKind.WHOLE and size > most_bytes - taken:
            target.unlink()
            left_out += 1
            continue
        kinds[kind] = None
        number, taken = number + found, taken + size
    if left_out == len(chosen):
        raise ConfigError(
            f"channel {origin.asked.name}: {origin.files[0].key} and the like are larger than {most_bytes >> 20} MB, "
            f"and their records are of an unknown format; pass smaller data: --channel {origin.asked.name}=FOLDER"
        )
    return ChannelSample(
        channel=as_files(origin.asked),
        where=origin.where,
        kind=" + ".join(kinds),
        records=number,
        files=len(chosen) - left_out,
        of_files=len(origin.files),
        size=taken,
        of_size=sum(file.size for file in origin.files),
        listed=origin.whole,
        left_out=left_out,
        no_data=origin.no_data,
    )


def spread(files: Sequence[DataFile], most: int) -> Sequence[DataFile]:
    """Return at most so many files, evenly spread over the list, so that all folders are represented."""
    if len(files) <= most:
        return files
    return [files[number * len(files) // most] for number in range(most)]


def as_files(channel: LocalChannel) -> LocalChannel:
    """Return the channel with a manifest as source: each host then gets its own files, whose reads can be noted."""
    if channel.mode is ChannelMode.PIPE:
        return channel
    keys = [entry.key for entry in channel.entries]
    manifest = channel.source.with_name(f"{channel.name}.manifest")
    manifest.write_text(json.dumps([{"prefix": f"{channel.source}/"}, *keys]))
    return replace(channel, source=manifest)
