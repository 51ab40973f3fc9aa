"""Write channels in Pipe mode into FIFOs, as SageMaker's platform does.

For each host and channel a thread makes CHANNEL_0, waits for a reader, writes all objects of the pass and closes; then
it makes CHANNEL_1, and so on until the job has ended. A reader that closes early gets the next pass.
"""

import contextlib
import errno
import fcntl
import gzip
import io
import os
import shutil
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from entrypoint.launcher.job.channels import Wrapper
from entrypoint.simulate.channels import LONGEST_RECORD, Channel, Compression, InputMode

_MAGIC = 0xCED7230A  # begin of a RecordIO record; the length follows, and the data are padded to a multiple of 4 bytes
_BLOCK = 1 << 20
_BUFFER = 1 << 18
_SMALL_BYTES = 1 << 15  # bytes; copying a smaller object is faster than splicing its pages
_PATIENCE_SECONDS = 5.0  # seconds in which a thread must end, once there is no reader


@dataclass(frozen=True, kw_only=True)
class Stream:
    channel: Channel
    folder: Path  # the host's input/data
    rank: int
    hosts: int


@contextlib.contextmanager
def feeding(streams: Iterable[Stream], failed: Callable[[str], None]) -> Iterator[None]:
    """Feed the channels in Pipe mode during the block. `failed` gets, in another thread, the error of a channel.

    At the end of the block all readers must be gone: a thread waits for its reader.
    """
    feeders = [_Feeder(stream, failed) for stream in streams if stream.channel.mode is InputMode.PIPE]
    try:
        for feeder in feeders:
            feeder.begin()
        yield
    finally:
        for feeder in feeders:
            feeder.stopping = True
        deadline = time.monotonic() + _PATIENCE_SECONDS
        for feeder in feeders:
            feeder.end(deadline)


class _Feeder:
    def __init__(self, stream: Stream, failed: Callable[[str], None]) -> None:
        self._stream, self._channel, self._failed = stream, stream.channel, failed
        self._fifo = stream.folder
        self._thread = threading.Thread(target=self._run, name=f"feed {stream.channel.name}", daemon=True)
        self._part: Path | bytes = b""  # the part that is being sent
        self.stopping = False

    def begin(self) -> None:
        self._make(0)
        self._thread.start()

    def end(self, deadline: float) -> None:
        """Wait until the thread has ended. It may wait for a reader, so open the FIFO for a moment."""
        while self._thread.is_alive() and time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                os.close(os.open(self._fifo, os.O_RDONLY | os.O_NONBLOCK))
            self._thread.join(0.02)
        self._remove()

    def _make(self, number: int) -> None:
        self._fifo = self._stream.folder / f"{self._channel.name}_{number}"
        os.mkfifo(self._fifo)

    def _remove(self) -> None:
        with contextlib.suppress(OSError):
            self._fifo.unlink()

    def _run(self) -> None:
        number = 0
        try:
            while not self.stopping:
                self._pass(number)
                number += 1
                self._make(number)
        except (OSError, EOFError, zlib.error) as error:
            if not self.stopping:
                what = f"{self._part}: " if isinstance(self._part, Path) else ""
                self._failed(f"channel {self._channel.name}, pass {number}: {what}{error}")

    def _pass(self, number: int) -> None:
        opened = os.open(self._fifo, os.O_WRONLY)  # returns when there is a reader
        with contextlib.suppress(BrokenPipeError), os.fdopen(opened, "wb", _BUFFER) as pipe:
            try:
                with contextlib.suppress(OSError):  # the kernel limits the pipes of a user who is not root
                    fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _BLOCK)
                for entry in self._channel.of_host(self._stream.rank, self._stream.hosts, number):
                    for self._part in entry.parts:
                        if self.stopping:
                            return
                        self._send(self._part, pipe)
                pipe.flush()
            finally:
                self._remove()  # before the reader sees the end, so that nobody opens this FIFO again

    def _send(self, part: Path | bytes, pipe: IO[bytes]) -> None:
        """Write one object or attribute, as a record if the channel has wrapper=RecordIO."""
        is_record = self._channel.wrapper is Wrapper.RECORD_IO
        if isinstance(part, Path) and self._channel.compression is Compression.GZIP:
            with gzip.open(part) as expanded:
                if not is_record:
                    shutil.copyfileobj(expanded, pipe, _BLOCK)
                    return
                part = expanded.read(LONGEST_RECORD + 1)
        with io.BytesIO(part) if isinstance(part, bytes) else open(part, "rb", buffering=0) as content:
            size = content.seek(0, os.SEEK_END)
            content.seek(0)
            if size > LONGEST_RECORD and is_record:
                raise OSError(errno.EFBIG, "an object is larger than a record may be, 512 MB, when it is expanded")
            if is_record:
                pipe.write(struct.pack("<II", _MAGIC, size))
            if size > _SMALL_BYTES and isinstance(content, io.FileIO):
                _hand_on(content, size, pipe)
            else:
                pipe.write(content.read(size) or b"")
            if is_record:
                pipe.write(bytes(-size % 4))


def _hand_on(file: io.FileIO, size: int, pipe: IO[bytes]) -> None:
    """Send a file into a pipe by splice: the kernel uses the pages in its cache, and we copy nothing."""
    pipe.flush()
    sent = 0
    while sent < size:
        try:
            count = os.splice(file.fileno(), pipe.fileno(), min(size - sent, _BLOCK))
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            shutil.copyfileobj(file, pipe, _BLOCK)  # the file system does not support splice
            return
        if not count:
            raise OSError(errno.EIO, f"{file.name!r} has become shorter while it was read")
        sent += count
