"""Open the named pipes of a Pipe mode channel in order, for one reading process, and read their bytes.

The number of the next pipe is kept as sagemaker-tensorflow's operator keeps it, in its files and under its lock, so
either reader can continue where the other stopped. Every iterator uses a number, even if it reads little or nothing.
"""

import fcntl
import logging
import os
import select
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sagemaker_tf_data.channels import Channel
from sagemaker_tf_data.errors import DataError

LOGGER = logging.getLogger(__name__)
STEP = 0.1  # seconds between two checks for a pipe that does not exist yet, as in SageMaker's own examples
FIRST_WORD, NEXT_WORD = 10.0, 60.0  # seconds of waiting until the first log line, and between further ones
GRACE = 5.0  # seconds for an earlier reader to exit, as when a host's program restarts
PAUSE = 1e-4  # seconds for an empty pipe to fill: reading page by page takes much more CPU
CAPACITY = 1 << 20  # of a pipe, in bytes: the most that Linux allows to all users; the default is 64 KiB

# Locks of channels that this process reads. The key has the process: a forked child inherits the dictionary, but may
# not read the channel.
_claims: dict[tuple[int, Path], int] = {}
# The last number that the operator was given; it increments the number only after it has opened the pipe.
_told: dict[Path, int] = {}
_lock = threading.Lock()


class ProgramEnded(Exception):
    """Report that the main thread has ended: a thread that prefetches must not keep the program alive."""


class Fifo:
    """Read the bytes of one pass, up to its end."""

    cut = "the pass ends there, in the middle of a record"

    def __init__(self, path: Path, descriptor: int, patience: float) -> None:
        self.path = path
        self._descriptor = descriptor
        self._patience = patience
        self._begun = False  # until there is a writer, poll() waits, and read() would report the end of the file
        self._ready = select.poll()
        self._ready.register(descriptor, select.POLLIN)

    def read_into(self, view: memoryview, linger: float | None = None) -> int | None:
        """Return the number of bytes read: 0 at the end of the pass, None if none came within `linger` seconds.

        Raises:
            DataError: No byte came within the patience.
        """
        waiting = None
        paused = False
        while True:
            if self._begun or self._ready.poll(1e3 * STEP):
                self._begun = True
                try:
                    return os.readv(self._descriptor, [view])
                except BlockingIOError:
                    if not paused:
                        time.sleep(PAUSE)
                        paused = True
                        continue
                    if self._ready.poll(1e3 * (STEP if linger is None else linger)):
                        continue
            if linger is not None:
                return None
            waiting = waiting or _Wait(self._patience)
            waiting.look(f"{self.path}: the pipe exists but is empty", "Does SageMaker still write to it?")


class Passes:
    """Open the pipes of a channel one after another, from the number in folder `state` on."""

    def __init__(self, channel: Channel, state: Path, patience: float) -> None:
        self.channel = channel
        self._state = state / f".{channel.name}-pipe_mode-state"
        self._lock = state / f".{channel.name}-pipe_mode-lock"
        self._claim = state / f".{channel.name}-pipe_mode-reader"  # the library's own; the operator has no such file
        self._patience = patience

    @contextmanager
    def next(self) -> Iterator[Fifo]:
        """Wait for the next pipe and open it. That uses up its number.

        Raises:
            DataError: Another process reads the channel, or the pipe was not created within the patience.
        """
        claim(self._claim, self.channel.name)
        path, descriptor = self._wait_for(self._open)
        try:
            yield Fifo(path, descriptor, self._patience)
        finally:
            os.close(descriptor)

    def await_next(self) -> None:
        """Wait until the next pipe exists, so that sagemaker-tensorflow's operator may open it.

        The operator itself would wait without limit.

        Raises:
            DataError: As for `next`.
        """
        claim(self._claim, self.channel.name)
        self._wait_for(self._tell)

    def _wait_for(self, attempt: Callable[[int, Path], int | None]) -> tuple[Path, int]:
        """Call `attempt` for the next pipe until it returns a result, and return (path, result)."""
        waiting = _Wait(self._patience)
        while True:
            with locked(self._lock):
                number = read_number(self._state)
                path = self.channel.fifo(number)
                result = attempt(number, path)
            if result is not None:
                return path, result
            later = self.channel.fifo(number + 1)
            if waiting.seconds > GRACE and later.exists() and not path.exists():
                # This process is the only reader. An earlier one exited between opening that pipe and counting it.
                LOGGER.warning("%s does not exist, but %s does: continuing with it", path, later.name)
                with locked(self._lock):
                    if read_number(self._state) == number:
                        write_number(self._state, number + 1)
                continue
            earlier = f" ({self.channel.fifo(number - 1).name} was the last one)" if number else ""
            waiting.look(
                f"{path}: there is no such pipe{earlier}",
                "SageMaker makes it when the pass before has been read to its end or closed, so an iterator that still "
                "holds that pipe delays this one",
            )
            time.sleep(STEP)

    def _open(self, number: int, path: Path) -> int | None:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise DataError(f"{path} is not a named pipe; wanted one, as SageMaker makes it in Pipe mode")
        write_number(self._state, number + 1)
        try:
            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, CAPACITY)
        except OSError:  # this machine allows less, which suffices
            pass
        return descriptor

    def _tell(self, number: int, path: Path) -> int | None:
        if number == _told.get(self._state) or not path.exists():
            return None
        _told[self._state] = number
        return number


def claim(path: Path, channel: str) -> None:
    """Make this process the channel's only reader until it exits. The lock's file names the process that holds it.

    Two readers would each get part of a pipe's records; or the second would wait for a pass that begins only when the
    first has read its own, and ranks that wait for one another would hang.

    Raises:
        DataError: Another process is the reader.
    """
    with _lock:
        if (os.getpid(), path) in _claims:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        deadline = time.monotonic() + GRACE
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    holder = os.pread(descriptor, 200, 0).decode(errors="replace").strip() or "another process"
                    os.close(descriptor)
                    raise DataError(
                        f"channel '{channel}' is read by {holder}, and this is process {os.getpid()}; one process "
                        f"reads a Pipe channel. With several ranks on a host give the job one channel per local rank "
                        f"('{channel}-1', '{channel}-2' ...), or use File mode"
                    ) from None
                time.sleep(STEP)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()} since {_clock(time.time())}\n".encode(), 0)
        _claims[os.getpid(), path] = descriptor


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file, which is created if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def read_number(path: Path) -> int:
    """Return the number of the next pass; 0 if there is no file yet.

    Raises:
        DataError: The file has something other than a number.
    """
    try:
        text = path.read_text()
        return int(text or 0)  # the operator truncates the file before it writes
    except FileNotFoundError:
        return 0
    except ValueError:
        raise DataError(f"{path} holds {text[:40]!r}; wanted the number of the next pass") from None


def write_number(path: Path, number: int) -> None:
    """Write the number in one call, so that a process that is killed leaves the old or the new one.

    A new number is never shorter than the old one.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o666)
    try:
        os.pwrite(descriptor, str(number).encode(), 0)
    finally:
        os.close(descriptor)


@dataclass
class _Wait:
    """Log from time to time that a wait continues, and end it with DataError after `patience` seconds."""

    patience: float

    def __post_init__(self) -> None:
        self._began, self._since = time.monotonic(), time.time()
        self._next_word = FIRST_WORD

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def look(self, what: str, why: str) -> None:
        """Log, or raise DataError, when it is time to. Raise ProgramEnded if the main thread has ended."""
        if self.seconds > self.patience:
            raise DataError(f"{what}, since {_clock(self._since)}, for {self.seconds:.0f} s. {why}")
        if not threading.main_thread().is_alive():
            raise ProgramEnded
        if self.seconds > self._next_word:
            LOGGER.warning(
                "waiting for %s, since %s; at most %.0f s. %s", what, _clock(self._since), self.patience, why
            )
            self._next_word += NEXT_WORD


def _clock(moment: float) -> str:
    return time.strftime("%H:%M:%S UTC", time.gmtime(moment))
