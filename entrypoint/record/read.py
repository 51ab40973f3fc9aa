"""Read the lines of a record, whole or as it grows, from bytes that may be cut off, broken or endless."""

import itertools
import json
import time
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from entrypoint.record import lines

MOST_BYTES = 1 << 30  # per record, expanded
MOST_LINE = 1 << 20
BATCH_LINES = 200  # parsing lines together is faster than one by one
HEADER = b"\x1f\x8b\x08\0\0\0\0\0\0\x03"  # of each member of a record
FLUSHED = b"\0\0\xff\xff"  # the end of each flush
CHUNK_BYTES = 1 << 20  # bytes that are expanded at once


class Members:
    """Expand gzip as monitors write it: members one after another, any of which may be cut off or broken.

    It comes in pieces of any size. What is whole is kept.
    """

    def __init__(self) -> None:
        self._gzip: Any = zlib.decompressobj(31)  # None: skip what follows until a member begins
        self._held = b""  # what may be the first part of a header
        self._rest = b""  # what may be the first part of a line
        self.size = 0  # bytes, expanded
        self.is_broken = False  # whether a part could not be expanded
        self.is_too_long = False  # whether it is longer than any honest record; no more of it is read

    def lines(self, data: bytes) -> Iterator[bytes]:
        """Yield the whole lines of a piece. No line continues across a gap where data may be missing."""
        for piece in self._expand(data):
            if self.is_too_long:
                return
            self.size += len(piece)
            *whole, self._rest = (self._rest + piece).split(b"\n") if piece else (b"",)
            yield from whole
            self.is_too_long = self.size > MOST_BYTES or len(self._rest) > MOST_LINE

    def _expand(self, data: bytes) -> Iterator[bytes]:
        """Yield the expanded data of a piece, and b"" where data may be missing."""
        data = self._held + data
        half = next((size for size in range(len(HEADER) - 1, 0, -1) if data.endswith(HEADER[:size])), 0)
        data, self._held = data[: len(data) - half], data[len(data) - half :]
        rest, *members = data.split(HEADER)
        yield from self._expand_member(rest)
        for member in members:
            yield b""
            self._gzip = zlib.decompressobj(31)
            yield from self._expand_member(HEADER + member)

    def _expand_member(self, data: bytes) -> Iterator[bytes]:
        """Yield the expanded data one flush at a time, so that a broken flush does not lose those before it."""
        *flushes, rest = data.split(FLUSHED)
        for piece in (*(flush + FLUSHED for flush in flushes), rest):
            while self._gzip:
                try:
                    text = self._gzip.decompress(piece, CHUNK_BYTES)
                except zlib.error:
                    self._gzip, self.is_broken = None, True
                    yield b""
                    break
                if text:
                    yield text
                piece = self._gzip.unconsumed_tail
                if self._gzip.eof:
                    self._gzip = None
                elif not piece and len(text) < CHUNK_BYTES:
                    break


def first_line(data: bytes) -> lines.HostLine | None:
    """Return a record's first line; None if it cannot be read or is not a line of kind `host`."""
    line = next(parsed([*itertools.islice(texts_of(data[: 1 << 16], []), 1)]), None)
    return line if isinstance(line, lines.HostLine) else None


def count_lines(data: bytes) -> float:
    """Estimate how many lines a record has, from its beginning."""
    expand, head = zlib.decompressobj(31), data[: 1 << 16]
    try:
        count = expand.decompress(head, MOST_LINE).count(b"\n")
    except zlib.error:
        return 0.0
    return count * len(data) / max(1, len(head) - len(expand.unconsumed_tail))


def batches(texts: Iterator[bytes], every: int) -> Iterator[list[bytes]]:
    """Yield lines in batches. Of samples and metrics, keep every `every`th sample's only, and lines with NaN."""
    batch: list[bytes] = []
    count = 0
    for line in texts:
        if every > 1 and line.startswith((b'["sample"', b'["metric"')):
            count += line.startswith(b'["sample"')
            if count % every and b"NaN" not in line:
                continue
        batch.append(line)
        if len(batch) >= BATCH_LINES:
            yield batch
            batch = []
    yield batch


def parsed(batch: list[bytes]) -> Iterator[lines.Line | None]:
    """Yield each line, or None if it is malformed. The batch is parsed at once; only if that fails, line by line."""
    try:
        found = json.loads(b"[" + b",".join(batch) + b"]")
    except lines.WRONG:
        found = []
    of = lines.line_of if len(found) == len(batch) else lambda text: lines.line_of(json.loads(text))
    for each in found if len(found) == len(batch) else batch:
        try:
            yield of(each)
        except lines.WRONG:
            yield None


def lines_of(data: bytes) -> Iterator[lines.Line]:
    """Yield the well-formed lines of a record."""
    for batch in batches(texts_of(data, []), 1):
        yield from filter(None, parsed(batch))


def texts_of(data: bytes, problems: list[str]) -> Iterator[bytes]:
    """Yield the whole lines of a record; describe faults of the rest in `problems`."""
    members = Members()
    yield from members.lines(data)
    if members.is_too_long:
        problems.append("it is longer than the limit")
        return
    if members.is_broken:
        problems.append("a part of it is broken")
    if not members.size:
        problems.append("it is empty, or not a record")


class RecordTail:
    """Read what was added to a growing record since the last read. Another host wrote it: bad lines are left out."""

    def __init__(self, path: Path) -> None:
        self._path, self._at, self._members = path, 0, Members()

    def lines(self, kinds: Collection[type[lines.Line]]) -> Iterator[lines.Line]:
        """Yield the whole lines of these kinds that were added since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._at)
                data = file.read()
        except OSError:  # the host has sent nothing yet
            return
        self._at += len(data)
        heads = tuple(f'["{kind.KIND}",'.encode() for kind in kinds)
        wanted = (line for line in self._members.lines(data) if line.startswith(heads))
        while batch := [*itertools.islice(wanted, BATCH_LINES)]:
            yield from filter(None, parsed(batch))


def wait_for(hosts: Collection[str], folder: Path, within: float) -> None:
    """Wait until the whole record of each of these hosts is in the folder, for `within` seconds at most."""
    until = time.monotonic() + within
    while hosts and time.monotonic() < until:
        hosts = [host for host in hosts if not (folder / f"{host}.whole").exists()]
        time.sleep(0.005)
    for path in folder.glob("*.whole"):
        path.unlink()


def text(value: str, most: int = 200) -> str:
    """Return a text, cut to `most` characters."""
    return value if len(value) <= most else value[: most - 3] + "..."
