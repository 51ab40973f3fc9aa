"""Gzip as monitors write it: members one after another, of which any may be cut off or broken; what is whole counts."""

import zlib
from collections.abc import Iterator
from typing import Any

HEADER = b"\x1f\x8b\x08\0\0\0\0\0\0\x03"  # of each member of a record
FLUSHED = b"\0\0\xff\xff"  # ends what was flushed
CHUNK_BYTES = 1 << 20  # bytes that are expanded at once


class Members:
    """Expands a record, which may come in pieces of any size."""

    def __init__(self) -> None:
        self._gzip: Any = zlib.decompressobj(31)  # None: what follows is not read until a member begins
        self._held = b""  # what may be the first half of a header
        self.broken = False  # whether something could not be read

    def expand(self, data: bytes) -> Iterator[bytes]:
        """Yield what is in it, b"" where something is missing: no line goes on across that."""
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
        """Expand one flush at a time: where one is broken, what came before it is not lost."""
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
