"""Take a sample of each channel: the first records of its files, in proportion to their sizes.

Files of TFRecord, RecordIO or lines are cut; other files are copied whole.
"""

import contextlib
import gzip
import io
import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import IO, Any, Protocol

from entrypoint.base.errors import ConfigError
from entrypoint.base.python310 import StrEnum
from entrypoint.check.rehearse.data_sources import DataFile, Origin
from entrypoint.simulate.local_channels import GZIP_MAGIC, LONGEST_RECORD, ChannelMode, LocalChannel
from sagemaker_tf_data import recordio, tfrecord
from sagemaker_tf_data.errors import DataError

RECORDS = 2000
MOST_BYTES = 512 << 20  # of a channel's sample: each host gets a copy
HEAD_BYTES = 4096  # bytes that tell what a file is
_BLOCK = 1 << 20
BUFFER_BYTES = 1 << 16
LONGEST_BYTES = 1 << 29  # bytes of a record
_LINES = (".csv", ".tsv", ".libsvm", ".svm", ".jsonl", ".ndjson", ".txt", ".svmlight")


@dataclass(frozen=True, kw_only=True)
class ChannelSample:
    """Describe a part of one channel. Its files represent all files of the channel, and are distributed alike."""

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
    """Copy about `records` records of a channel into its sample's folder; each chosen file gives at least one."""
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
    """Return at most `most` files, evenly spread over the list, so that all folders are represented."""
    if len(files) <= most:
        return files
    return [files[number * len(files) // most] for number in range(most)]


def as_files(channel: LocalChannel) -> LocalChannel:
    """Return the channel with a manifest as source: each host gets files of its own, so that reads can be noted."""
    if channel.mode is ChannelMode.PIPE:
        return channel
    keys = [entry.key for entry in channel.entries]
    manifest = channel.source.with_name(f"{channel.name}.manifest")
    manifest.write_text(json.dumps([{"prefix": f"{channel.source}/"}, *keys]))
    return replace(channel, source=manifest)


# --- the records of one file ---


class ByteSource(Protocol):
    """Define a source of bytes that are read in order: a file, a gzip file, or the body of an object in S3."""

    def read(self, size: int, /) -> bytes: ...


class RecordKind(StrEnum):
    """Name the kind of records in a file."""

    TFRECORD = "TFRecord"
    RECORDIO = "RecordIO"
    LINES = "lines"
    WHOLE = "whole files"


def kind_of(name: str, head: bytes) -> RecordKind:
    """Return a file's format by its first bytes, expanded if they are gzip; lines are recognised by the name."""
    if head[:2] == GZIP_MAGIC:
        try:
            head = gzip.GzipFile(fileobj=io.BytesIO(head)).read1(HEAD_BYTES)
        except (OSError, EOFError):
            return RecordKind.WHOLE
        name = name.lower().removesuffix(".gz").removesuffix(".gzip")
    if head.startswith(recordio.WORD):
        return RecordKind.RECORDIO
    with contextlib.suppress(DataError, struct.error):  # it is no record, or too short for one
        tfrecord.size(head)
        return RecordKind.TFRECORD
    return RecordKind.LINES if name.lower().endswith(_LINES) else RecordKind.WHOLE


def cut(source: ByteSource, target: IO[bytes], name: str, most: int, room: int) -> tuple[RecordKind, int, int]:
    """Copy the first `most` records, up to about `room` bytes; return (kind, records, bytes of the source).

    A whole file is one record, of which little more than `room` bytes are copied. The copy of a compressed file is
    compressed. Raise ConfigError if a record is not whole.
    """
    head = io.BufferedReader(_Raw(source), BUFFER_BYTES)
    kind = kind_of(name, head.peek()[:HEAD_BYTES])
    if kind is RecordKind.WHOLE:
        while room >= 0 and (block := head.read(_BLOCK)):
            target.write(block)
            room -= len(block)
        return kind, 1, head.tell()
    if head.peek()[:2] != GZIP_MAGIC:
        records, size = _records(kind, head, target, most, room, name)
        return kind, records, size
    with gzip.GzipFile(fileobj=target, mode="wb") as packed:
        unpacked = gzip.GzipFile(fileobj=head, mode="rb")
        try:
            records, _ = _records(kind, unpacked, packed, most, room, name)
        except (OSError, EOFError) as problem:
            raise ConfigError(f"{name} cannot be expanded: {problem}; wanted a complete gzip file") from None
    return kind, records, head.tell()


def _records(
    kind: RecordKind, source: io.BufferedIOBase, target: IO[bytes] | gzip.GzipFile, most: int, room: int, name: str
) -> tuple[int, int]:
    """Copy records; return (their number, their bytes)."""
    size = 0
    for number in range(most):
        if size > room:
            return number, size
        if kind is RecordKind.LINES:
            record = source.readline()
        else:
            record = (_tfrecord if kind is RecordKind.TFRECORD else _recordio)(source, name, number)
        if not record:
            return number, size
        target.write(record)
        size += len(record)
    return most, size


def _tfrecord(source: ByteSource, name: str, number: int) -> bytes:
    if not (header := source.read(tfrecord.HEADER)):
        return b""
    try:
        size = tfrecord.size(header)
    except (DataError, struct.error):
        raise ConfigError(f"{name}: record {number} is not a TFRecord; wanted a complete file") from None
    return header + _rest(source, size - len(header), name, number)


def _recordio(source: ByteSource, name: str, number: int) -> bytes:
    """Return the frames of one record, with their padding."""
    frames = []
    while header := source.read(8):
        magic, word = struct.unpack("<II", header) if len(header) == 8 else (0, 0)
        if magic != recordio.MAGIC:
            raise ConfigError(f"{name}: record {number} is not RecordIO; wanted a complete file")
        length = word & LONGEST_RECORD
        content = _rest(source, length, name, number)
        frames += [header, content, source.read(-length % 4)]
        if word >> 29 not in (1, 2):
            break
    return b"".join(frames)


def _rest(source: ByteSource, length: int, name: str, number: int) -> bytes:
    content = source.read(length) if length <= LONGEST_BYTES else b""
    if len(content) < length:
        raise ConfigError(f"{name}: record {number} is cut off; wanted a complete file")
    return content


class _Raw(io.RawIOBase):
    """Make a raw stream of a source, to look ahead at its first bytes and to read lines by io.BufferedReader."""

    def __init__(self, source: ByteSource) -> None:
        self._source, self._at = source, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Fill the whole buffer, unless the source ends."""
        size = 0
        while size < len(buffer) and (block := self._source.read(len(buffer) - size)):
            buffer[size : size + len(block)] = block
            size += len(block)
        self._at += size
        return size

    def tell(self) -> int:
        return self._at
