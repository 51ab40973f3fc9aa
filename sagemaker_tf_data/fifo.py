"""The named pipes of a Pipe mode channel: which is next, who may read it, and the bytes in it.

The number of the next one is kept as sagemaker-tensorflow's operator keeps it, in its files and under its lock, so that
either may go on where the other stopped. Every iterator takes a number, also one that reads little or nothing.
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
STEP = 0.1  # seconds between two looks for a pipe that is not there; SageMaker's own examples do the same
FIRST_WORD, NEXT_WORD = 10.0, 60.0  # seconds of waiting after which to say so, and between reminders
GRACE = 5.0  # seconds that a reader may take to end which another one follows, as when a host's program starts again
PAUSE = 1e-4  # seconds for an empty pipe to fill: to read every page as it comes takes much more of the processor
CAPACITY = 1 << 20  # of a pipe, in bytes: what Linux allows to all users; 64 KiB otherwise

# Locks that say "this process reads the channel", by process, as a forked child has the dictionary and not the right.
_claims: dict[tuple[int, Path], int] = {}
# The last number for which the operator was told to go on; it counts up only after it has opened the pipe.
_told: dict[Path, int] = {}
_lock = threading.Lock()


class ProgramEnded(Exception):
    """Nobody wants the data any more: a thread that prefetches must not keep a finished program from ending."""


class Fifo:
    """The bytes of one pass, up to its end."""

    cut = "the pass ends there, in the middle of a record"

    def __init__(self, path: Path, descriptor: int, patience: float) -> None:
        self.path = path
        self._descriptor = descriptor
        self._patience = patience
        self._begun = False  # before there is a writer, poll() waits and read() says that all is over
        self._ready = select.poll()
        self._ready.register(descriptor, select.POLLIN)

    def read_into(self, view: memoryview, linger: float | None = None) -> int | None:
        """Number of bytes read, 0 at the end of the pass; None where none came for `linger` seconds.

        Raises:
            DataError: No byte came for as long as there is patience.
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
            waiting.look(f"{self.path}: it is there and nothing is in it", "Does SageMaker still write to it?")


class Passes:
    """The pipes of a channel, one after another, from the number in `state` on."""

    def __init__(self, channel: Channel, state: Path, patience: float) -> None:
        self.channel = channel
        self._state = state / f".{channel.name}-pipe_mode-state"
        self._lock = state / f".{channel.name}-pipe_mode-lock"
        self._claim = state / f".{channel.name}-pipe_mode-reader"  # ours; the operator has no such file
        self._patience = patience

    @contextmanager
    def next(self) -> Iterator[Fifo]:
        """Waits for the next pipe and opens it, from which time on its number is used up.

        Raises:
            DataError: Another process reads the channel, or the pipe did not come.
        """
        claim(self._claim, self.channel.name)
        path, descriptor = self._wait_for(self._open)
        try:
            yield Fifo(path, descriptor, self._patience)
        finally:
            os.close(descriptor)

    def await_next(self) -> None:
        """Returns when the operator may open the next pipe, which it does without a lock and waiting for a writer.

        Raises:
            DataError: As for `next`.
        """
        claim(self._claim, self.channel.name)
        self._wait_for(self._tell)

    def _wait_for(self, attempt: Callable[[int, Path], int | None]) -> tuple[Path, int]:
        """(path, result) of `attempt`, once it has one for the pipe that is next."""
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
                # Nobody else reads now. Whoever did has ended between opening that pipe and counting it.
                LOGGER.warning("%s is gone and %s is there: going on with that pass", path, later.name)
                with locked(self._lock):
                    if read_number(self._state) == number:
                        write_number(self._state, number + 1)
                continue
            earlier = f" ({self.channel.fifo(number - 1).name} was the last one)" if number else ""
            waiting.look(
                f"{path}: there is no such pipe{earlier}",
                "SageMaker makes it when the pass before has been read to its end or closed, so an iterator that still "
                "holds that one keeps this one from coming",
            )
            time.sleep(STEP)

    def _open(self, number: int, path: Path) -> int | None:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise DataError(f"{path} is no named pipe; wanted one, as SageMaker makes it in Pipe mode")
        write_number(self._state, number + 1)
        try:
            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, CAPACITY)
        except OSError:  # this machine allows less, and it works with less
            pass
        return descriptor

    def _tell(self, number: int, path: Path) -> int | None:
        if number == _told.get(self._state) or not path.exists():
            return None
        _told[self._state] = number
        return number


def claim(path: Path, channel: str) -> None:
    """Makes this process the channel's one reader, until it ends. Whoever holds the lock is named in its file.

    Two readers would each get half of the records of a pipe, or the second one would wait for a pass that comes only
    when the first one has read its own: ranks that wait for one another then stand still for ever.

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
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def read_number(path: Path) -> int:
    """Return the number of the next pass; 0 where there is no file yet.

    Raises:
        DataError: There is something else in it.
    """
    try:
        text = path.read_text()
        return int(text or 0)  # the operator empties the file before it writes
    except FileNotFoundError:
        return 0
    except ValueError:
        raise DataError(f"{path} holds {text[:40]!r}; wanted the number of the next pass") from None


def write_number(path: Path, number: int) -> None:
    """In one call, so that whoever is killed leaves the old number or the new one; a new one is never shorter."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o666)
    try:
        os.pwrite(descriptor, str(number).encode(), 0)
    finally:
        os.close(descriptor)


@dataclass
class _Wait:
    """One wait: says now and then that it goes on, and gives up in the end."""

    patience: float

    def __post_init__(self) -> None:
        self._began, self._since = time.monotonic(), time.time()
        self._next_word = FIRST_WORD

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def look(self, what: str, why: str) -> None:
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
