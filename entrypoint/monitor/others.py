"""The coordinator reads what the other hosts' records have got since it looked last."""

import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class Tail:
    """The end of one record, which grows."""

    def __init__(self, path: Path) -> None:
        self._path, self._at, self._rest = path, 0, b""
        self._gzip = zlib.decompressobj(31)

    def lines(self, kinds: tuple[str, ...]) -> Iterator[list[Any]]:
        """Yield lines of these kinds that have come since the last call, as far as they are whole."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._at)
                piece = file.read()
        except OSError:  # it has brought nothing yet
            return
        self._at += len(piece)
        try:
            *whole, self._rest = (self._rest + self._gzip.decompress(piece)).split(b"\n")
        except zlib.error:  # no record, or not from its beginning
            return
        heads = tuple(f'["{kind}",'.encode() for kind in kinds)
        for line in whole:
            if line.startswith(heads):
                yield json.loads(line)
