"""The file that holds what one host has seen, compressed: see README.md for its lines."""

import json
import zlib
from pathlib import Path
from typing import Any

from entrypoint.control.records import MOST


class Record:
    """Lines are kept until `flush`, which makes of what came since the last one a piece that can be read."""

    def __init__(self, path: Path) -> None:
        self.path, self.size = path, 0
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("wb", buffering=0)
        self._gzip = zlib.compressobj(6, zlib.DEFLATED, 31)
        self._changed = False

    def add(self, kind: str, at: float, *values: Any) -> None:
        """Add a line; `at` is in seconds since the epoch."""
        self.add_line(json.dumps([kind, round(at, 3), *values], separators=(",", ":")).encode())

    def add_line(self, line: bytes) -> None:
        """Add a line that is JSON already."""
        if self.size < MOST:
            self._write(self._gzip.compress(line + b"\n"))
            self._changed = True

    def flush(self) -> None:
        """Write what was added; OSError if that cannot be done."""
        if self._changed:
            self._write(self._gzip.flush(zlib.Z_SYNC_FLUSH))
            self._changed = False

    def close(self) -> None:
        """Write all, and the end."""
        self._write(self._gzip.flush())
        self._changed = False
        self._file.close()

    def _write(self, piece: bytes) -> None:
        self.size += self._file.write(piece) or 0
