"""Copy the first records of files: of TFRecord, RecordIO or lines; copy other files whole.

A source is anything with `read`: a file, a gzip file, the body of an object in S3.
"""

import gzip
import io
import struct
from typing import IO, Any, Protocol

from entrypoint.base.errors import ConfigError
from entrypoint.base.python310 import StrEnum
from entrypoint.simulate.local_channels import GZIP_MAGIC, LONGEST_RECORD, MAGIC

HEAD_BYTES = 4096  # bytes that tell what a file is
_BLOCK = 1 << 20
BUFFER_BYTES = 1 << 16
LONGEST_BYTES = 1 << 29  # bytes of a record
_LINES = (".csv", ".tsv", ".libsvm", ".svm", ".jsonl", ".ndjson", ".txt", ".svmlight")


class Source(Protocol):
    """Define what bytes are read from, in order."""

    def read(self, size: int, /) -> bytes: ...


class Kind(StrEnum):
    """Name what a file consists of."""

    TFRECORD = "TFRecord"
    RECORDIO = "RecordIO"
    LINES = "lines"
    WHOLE = "whole files"


def kind_of(name: str, head: bytes) -> Kind:
    """Return a file's format by its first bytes, expanded if they are gzip; lines are recognised by the name."""
    if head[:2] == GZIP_MAGIC:
        try:
            head = gzip.GzipFile(fileobj=io.BytesIO(head)).read1(HEAD_BYTES)
        except (OSError, EOFError):
            return Kind.WHOLE
        name = name.lower().removesuffix(".gz").removesuffix(".gzip")
    if len(head) >= 12 and struct.unpack_from("<I", head, 8)[0] == _masked_crc(head[:8]):
        return Kind.TFRECORD
    if len(head) >= 8 and struct.unpack_from("<I", head)[0] == MAGIC:
        return Kind.RECORDIO
    return Kind.LINES if name.lower().endswith(_LINES) else Kind.WHOLE


def cut(source: Source, target: IO[bytes], name: str, most: int, room: int) -> tuple[Kind, int, int]:
    """Copy the first `most` records, up to about `room` bytes; return (kind, records, bytes of the source).

    A whole file is one record, of which little more than `room` bytes are copied. The copy of a compressed file is
    compressed. ConfigError if a record is not whole.
    """
    head = io.BufferedReader(_Raw(source), BUFFER_BYTES)
    kind = kind_of(name, head.peek()[:HEAD_BYTES])
    if kind is Kind.WHOLE:
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
    kind: Kind, source: io.BufferedIOBase, target: IO[bytes] | gzip.GzipFile, most: int, room: int, name: str
) -> tuple[int, int]:
    """Copy records; return (their number, their bytes)."""
    size = 0
    for number in range(most):
        if size > room:
            return number, size
        if kind is Kind.LINES:
            record = source.readline()
        else:
            record = (_tfrecord if kind is Kind.TFRECORD else _recordio)(source, name, number)
        if not record:
            return number, size
        target.write(record)
        size += len(record)
    return most, size


def _tfrecord(source: Source, name: str, number: int) -> bytes:
    header = source.read(12)
    if not header:
        return b""
    if len(header) < 12 or struct.unpack_from("<I", header, 8)[0] != _masked_crc(header[:8]):
        raise ConfigError(f"{name}: record {number} is not a TFRecord; wanted a complete file")
    (length,) = struct.unpack_from("<Q", header)
    return header + _rest(source, length + 4, name, number)


def _recordio(source: Source, name: str, number: int) -> bytes:
    """Return the frames of one record, with their padding."""
    frames = []
    while header := source.read(8):
        magic, word = struct.unpack("<II", header) if len(header) == 8 else (0, 0)
        if magic != MAGIC:
            raise ConfigError(f"{name}: record {number} is not RecordIO; wanted a complete file")
        length = word & LONGEST_RECORD
        content = _rest(source, length, name, number)
        frames += [header, content, source.read(-length % 4)]
        if word >> 29 not in (1, 2):
            break
    return b"".join(frames)


def _rest(source: Source, length: int, name: str, number: int) -> bytes:
    content = source.read(length) if length <= LONGEST_BYTES else b""
    if len(content) < length:
        raise ConfigError(f"{name}: record {number} is cut off; wanted a complete file")
    return content


class _Raw(io.RawIOBase):
    """Make a raw stream of a source, to look ahead at its first bytes and to read lines by io.BufferedReader."""

    def __init__(self, source: Source) -> None:
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


def _masked_crc(content: bytes) -> int:
    """Return TFRecord's checksum of a record's length."""
    crc = 0xFFFFFFFF
    for byte in content:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
