"""Provide a host's standard output as a pipe that nobody reads at first, in the place of the engine's log."""

import os
import threading
from pathlib import Path


class Output:
    """A named pipe, and its reader. `with` it, the pipe has an open other end, which may read nothing."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        self._got = bytearray()
        self._reader = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> "Output":
        return self

    def __exit__(self, *_: object) -> None:
        self.text()
        os.close(self._fd)

    def read_on(self) -> None:
        """Read from now on, until the host's end; it has begun to write."""
        os.set_blocking(self._fd, True)
        self._reader.start()

    def _read(self) -> None:
        while block := os.read(self._fd, 1 << 16):
            self._got.extend(block)

    def text(self) -> bytes:
        """Return what was read; complete once the host is gone."""
        if self._reader.ident:
            self._reader.join(10)
        return bytes(self._got)
