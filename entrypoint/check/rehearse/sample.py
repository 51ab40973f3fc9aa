"""Takes a sample of each channel: the first records of its files, so many of each as it is large."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from entrypoint.base.errors import ConfigError
from entrypoint.check.rehearse.cut_records import Kind, cut
from entrypoint.check.rehearse.data_sources import File, Origin
from entrypoint.simulate.channels import Channel, InputMode

RECORDS = 2000
MOST_BYTES = 512 << 20  # of a channel: each host has a copy


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A part of one channel. Its files stand for those of the whole, so that they are dealt out as those are."""

    channel: Channel  # of the sample
    where: str  # the whole
    kind: str  # TFRecord, RecordIO, lines, whole files; several with + between them
    records: int
    files: int
    of_files: int
    size: int  # bytes of the whole that were taken
    of_size: int
    listed: bool = True  # whether the whole was listed to its end
    left_out: int = 0  # files that are too large to be taken whole
    no_data: tuple[str, ...] = ()  # as of Origin

    @property
    def part(self) -> float:
        """How much of the whole it is, from 0 to 1."""
        return min(1.0, self.size / self.of_size) if self.of_size else 1.0


def take(origin: Origin, records: int, most_bytes: int = MOST_BYTES) -> Sample:
    """Copy so many records of a channel (some more, as each file gives one) into the folder of its sample."""
    folder = origin.asked.source
    chosen = spread(origin.files, records)
    total = sum(file.size for file in chosen)
    kinds: dict[Kind, None] = {}
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
        if kind is Kind.WHOLE and size > most_bytes - taken:
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
    return Sample(
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


def spread(files: Sequence[File], most: int) -> Sequence[File]:
    """Return at most so many files, evenly over all: of each folder some."""
    if len(files) <= most:
        return files
    return [files[number * len(files) // most] for number in range(most)]


def as_files(channel: Channel) -> Channel:
    """Return the channel by a list of its objects: each host has files of its own, and one sees which it reads."""
    if channel.mode is InputMode.PIPE:
        return channel
    keys = [entry.key for entry in channel.entries]
    manifest = channel.source.with_name(f"{channel.name}.manifest")
    manifest.write_text(json.dumps([{"prefix": f"{channel.source}/"}, *keys]))
    return replace(channel, source=manifest)
