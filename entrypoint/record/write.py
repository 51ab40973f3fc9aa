"""Write a host's record: a compressed file of lines. lines.py describes the lines."""

import contextlib
import io
import os
import zlib
from collections.abc import Callable
from pathlib import Path

from entrypoint.record.lines import Line

RECORD_BYTES = 64 << 20  # per host, compressed: monitors write no more, and the coordinator accepts no more
WAITING_BYTES = 1 << 20  # compressed bytes that are kept while they cannot be written; after that, lines are left out


class Record:
    """Write lines to a file that can be read at any time, up to the last `flush`.

    What cannot be written, such as on a full disk, is kept in memory and written as soon as possible; `say` logs it.
    With `again`, continue the file of an earlier monitor of this job.
    """

    def __init__(self, path: Path, say: Callable[[str], None], again: bool = False) -> None:
        self.path, self._say = path, say
        self.size = 0  # bytes written
        self._mode = "a+" if again else "w+"
        self._file: io.FileIO | None = None
        self._gzip = zlib.compressobj(6, zlib.DEFLATED, 31)
        self._changed = self._closed = False
        self._waiting = bytearray()
        self._trouble = ""
        self._missing = 0  # lines left out since writing failed
        self._write()

    def add(self, line: Line | bytes) -> None:
        """Add a line, which may already be JSON."""
        if self.size + len(self._waiting) >= RECORD_BYTES:
            return
        if len(self._waiting) >= WAITING_BYTES:
            self._missing += 1
            return
        self._waiting += self._gzip.compress((line if isinstance(line, bytes) else line.to_json()) + b"\n")
        self._changed = True

    def flush(self) -> None:
        """Write what was added, as far as the disk allows now."""
        if self._closed:
            return
        if self._changed:
            self._waiting += self._gzip.flush(zlib.Z_SYNC_FLUSH)
            self._changed = False
        self._write()

    def close(self) -> None:
        """Write everything that is left and the end of the gzip data, and close the file."""
        self._waiting += self._gzip.flush()
        self._write()
        if self._waiting:
            self._say(f"warning: the end of the record of this host is missing: {self._trouble}")
        self._closed = True
        if self._file:
            self._file.close()

    def _write(self) -> None:
        try:
            self._open()
            while self._waiting and self._file and (count := self._file.write(self._waiting)):
                del self._waiting[:count]
                self.size += count
        except OSError as error:
            why = error.strerror or str(error)
            if not self._trouble:
                kept = f"up to {WAITING_BYTES >> 20} MB of it are kept in memory until they can be"
                self._say(f"warning: the record of this host cannot be written to {self.path.parent}: {why}; {kept}")
            self._trouble = why
            return
        if self._trouble and not self._waiting:
            missing = f"; {self._missing} lines are missing" if self._missing else ", and nothing is missing"
            self._say(f"the record of this host can be written again{missing}")
            self._trouble, self._missing = "", 0

    def _open(self) -> None:
        """Open the file. If somebody has removed it, create it again with all that was written."""
        if self._file and os.fstat(self._file.fileno()).st_nlink:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        before, self._file = self._file, io.FileIO(self.path, self._mode)
        self.size = self._file.seek(0, os.SEEK_END)
        if before:
            with contextlib.closing(before):
                before.seek(0)
                self._waiting[:0] = before.read()
