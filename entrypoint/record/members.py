"""Expand gzip as monitors write it: members one after another, any of which may be cut off or broken."""

import zlib
from collections.abc import Iterator
from typing import Any

HEADER = b"\x1f\x8b\x08\0\0\0\0\0\0\x03"  # of each member of a record
FLUSHED = b"\0\0\xff\xff"  # the end of each flush
CHUNK_BYTES = 1 << 20  # bytes that are expanded at once


class Members:
    """Expand a record that comes in pieces of any size. What is whole is kept."""

    def __init__(self) -> None:
        self._gzip: Any = zlib.decompressobj(31)  # None: skip what follows until a member begins
        self._held = b""  # what may be the first part of a header
        self.broken = False  # whether a part could not be expanded

    def expand(self, data: bytes) -> Iterator[bytes]:
        """Yield the expanded data of a piece, and b"" where data may be missing: no line continues across that gap."""
        data = self._held + data
        half = next((size for size in range(len(HEADER) - 1, 0, -1) if data.endswith(HEADER[:size])), 0)
        data, self._held = data[: len(data) - half], data[len(data) - half :]
        rest, *members = data.split(HEADER)
        yield from self._expand(rest)
        for member in members:
            yield b""
            self._gzip = zlib.decompressobj(31)
            yield from self._expand(HEADER + member)

    def _expand(self, data: bytes) -> Iterator[bytes]:
        """Yield the expanded data one flush at a time, so that a broken flush does not lose those before it."""
        *flushes, rest = data.split(FLUSHED)
        for piece in (*(flush + FLUSHED for flush in flushes), rest):
            while self._gzip:
                try:
                    text = self._gzip.decompress(piece, CHUNK_BYTES)
                except zlib.error:
                    self._gzip, self.broken = None, True
                    yield b""
                    break
                if text:
                    yield text
                piece = self._gzip.unconsumed_tail
                if self._gzip.eof:
                    self._gzip = None
                elif not piece and len(text) < CHUNK_BYTES:
                    break
