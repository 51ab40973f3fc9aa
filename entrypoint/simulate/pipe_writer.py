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
from typing import IO, cast

from entrypoint.launcher.job.channels import Wrapper
from entrypoint.simulate.local_channels import LONGEST_RECORD, MAGIC, ChannelMode, Compression, LocalChannel

_BLOCK = 1 << 20
_BUFFER = 1 << 18
_PATIENCE_SECONDS = 5.0  # seconds in which a thread must end, once there is no reader


@dataclass(frozen=True, kw_only=True)
class Stream:
    channel: LocalChannel
    folder: Path  # the host's input/data
    rank: int
    hosts: int


@contextlib.contextmanager
def feeding(streams: Iterable[Stream], failed: Callable[[str], None]) -> Iterator[None]:
    """Feed the channels in Pipe mode during the block. `failed` gets, in another thread, the error of a channel.

    At the end of the block all readers must be gone: a thread waits for its reader.
    """
    feeders = [_Feeder(stream, failed) for stream in streams if stream.channel.mode is ChannelMode.PIPE]
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
        self._fifo = stream.folder / f"{stream.channel.name}_0"
        self._thread = threading.Thread(target=self._run, name=f"feed {stream.channel.name}", daemon=True)
        self._part: Path | bytes = b""  # the part that is being sent
        self.stopping = False

    def begin(self) -> None:
        os.mkfifo(self._fifo)
        self._thread.start()

    def end(self, deadline: float) -> None:
        """Wait until the thread has ended. It may wait for a reader, so open the FIFO for a moment."""
        while self._thread.is_alive() and time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                os.close(os.open(self._fifo, os.O_RDONLY | os.O_NONBLOCK))
            self._thread.join(0.02)
        self._fifo.unlink(missing_ok=True)

    def _run(self) -> None:
        number = 0
        try:
            while not self.stopping:
                self._pass(number)
                number += 1
                self._fifo = self._stream.folder / f"{self._channel.name}_{number}"
                os.mkfifo(self._fifo)
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
                self._fifo.unlink(missing_ok=True)  # before the reader sees the end, so that nobody opens it again

    def _send(self, part: Path | bytes, pipe: IO[bytes]) -> None:
        """Write one object or attribute, as a record if the channel has wrapper=RecordIO."""
        with self._opened(part) as content:
            if self._channel.wrapper is not Wrapper.RECORD_IO:
                shutil.copyfileobj(content, pipe, _BLOCK)
                return
            data = content.read(LONGEST_RECORD + 1)
        if len(data) > LONGEST_RECORD:
            raise OSError(errno.EFBIG, "an object is larger than a record may be, 512 MB, when it is expanded")
        pipe.write(struct.pack("<II", MAGIC, len(data)))
        pipe.write(data)
        pipe.write(bytes(-len(data) % 4))

    def _opened(self, part: Path | bytes) -> IO[bytes]:
        if isinstance(part, bytes):
            return io.BytesIO(part)
        return cast(IO[bytes], gzip.open(part)) if self._channel.compression is Compression.GZIP else part.open("rb")
