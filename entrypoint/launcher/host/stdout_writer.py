"""Write output to a file descriptor that may be read slowly, or never. A thread waits for the reader in our place."""

import contextlib
import os
import select
import stat
import threading
import time
from collections.abc import Callable

LIMIT_BYTES = 4 << 20  # bytes waiting from which on no more should come
MOST_BYTES = 15 << 20  # bytes waiting beyond which what comes is counted and dropped
RESERVE_BYTES = 1 << 20  # bytes beyond that for what is worth more
STALLED_SECONDS = 2.0  # seconds in which nothing was taken, after which no reader is expected
PATIENCE_SECONDS = 20.0  # at the end, in which nothing is taken until we leave; the last lines are the most useful
HURRY_SECONDS = 5.0  # the same, if SageMaker waits for our end
LAST_SECONDS = 60.0  # seconds at the end, even if something is taken
ALONE_SECONDS = 0.2  # seconds that a writer waits for a reader if there can be no thread
AT_ONCE_BYTES = 1 << 16  # bytes that are written by one call


class Sink:
    """Write to `fd`. Writers do not wait for a reader. The bytes of one call stay together, and calls stay in order.

    A pipe is opened a second time for O_NONBLOCK, which on `fd` itself would affect all processes that share it. While
    a reader keeps up, `put` writes at once and the thread is idle. If the pipe cannot be opened again, the thread
    writes everything.
    """

    def __init__(self, fd: int) -> None:
        self._fd, self._own = fd, _opened_again(fd)
        # A pipe takes PIPE_BUF bytes as a whole or not at all, so what it did not take is known exactly.
        self._piece = select.PIPE_BUF if self._own is None else AT_ONCE_BYTES
        self._buffer = bytearray()  # what waits, with what is being written; changed under the lock
        self.lost = 0  # bytes that will never be written; changed under the lock
        self._moved = 0.0  # when something was taken last
        self._in_line = self._torn = False  # the last output is part of a line; its rest is lost
        self._lock = threading.RLock()
        self._filled, self._emptied = threading.Condition(self._lock), threading.Condition(self._lock)
        self._thread: threading.Thread | None = None

    @property
    def waiting(self) -> int:
        """Return how many bytes are not written yet."""
        return len(self._buffer)

    @property
    def is_full(self) -> bool:
        return self.waiting >= LIMIT_BYTES

    @property
    def is_stalled(self) -> bool:
        return self.waiting > 0 and time.monotonic() > self._moved + STALLED_SECONDS

    def put(self, text: bytes, reserve: int = 0) -> None:
        """Write as much as the reader takes at once. The rest stays until `hand_over`."""
        with self._lock:
            count: int | None = 0
            if not self._buffer:
                self._moved = time.monotonic()
                count = self._write(text) if self._own is not None else 0
            if count is None or self.waiting + len(text) - count > MOST_BYTES + reserve:
                self.lost += len(text) - (count or 0)
            else:
                self._buffer += text[count:]

    def hand_over(self) -> None:
        """Leave the unwritten output to the thread."""
        if not self.waiting:
            return
        with self._lock:
            self._filled.notify()
            if self._thread is None:
                thread = threading.Thread(target=self._write_all, name="sink", daemon=True)
                try:
                    thread.start()
                    self._thread = thread
                except RuntimeError:  # no thread is left: better to wait a moment for a reader than to lose it
                    self._write_until(time.monotonic() + (0.0 if self.is_stalled else ALONE_SECONDS))

    def wait_for_space(self, seconds: float, limit: int = LIMIT_BYTES) -> None:
        """Wait until fewer than `limit` bytes are unwritten, for at most `seconds`."""
        with self._lock:
            self._emptied.wait_for(lambda: self.waiting < limit, seconds)

    def finish(self, patience: float = PATIENCE_SECONDS, hurries: Callable[[], bool] = bool) -> int:
        """Wait a while for the rest to be written. Return the number of lost bytes.

        While `hurries()`, the wait is shorter: SageMaker waits for our end.
        """
        began = time.monotonic()
        while self.waiting and time.monotonic() < began + LAST_SECONDS:
            if time.monotonic() >= max(began, self._moved) + (HURRY_SECONDS if hurries() else patience):
                break
            self.hand_over()
            with self._lock:
                self._emptied.wait_for(lambda: not self.waiting, 0.1)
        with self._lock:
            if self._own is not None and not self.waiting:
                os.close(self._own)
                self._own = None
        return self.lost + self.waiting

    def _write_all(self) -> None:
        while True:
            with self._lock:
                self._filled.wait_for(lambda: self._buffer)
            self._write_until(None)

    def _write_until(self, until: float | None) -> None:
        """Write the unwritten output.

        Only one thread does this at a time: the sink's own; without one, the thread that holds the lock.
        """
        poll = select.poll()
        poll.register(self._fd, select.POLLOUT)
        left: float | None = None
        while left != 0 and (text := self._buffer[: self._piece]):
            if until is not None:
                left = max(0.0, until - time.monotonic()) * 1000
            if not poll.poll(left):
                break
            count = self._write(text)
            with self._lock:
                if count is None:  # only whole lines are shown: the rest of a torn line is lost with it
                    count = len(self._buffer)
                    self.lost += count
                del self._buffer[:count]
                self._emptied.notify_all()

    def _write(self, text: bytes | bytearray) -> int | None:
        """Write once. Return how many bytes were taken, 0 if the reader takes none now; None if the text is lost."""
        fd = self._fd if self._own is None else self._own
        try:
            if self._torn:
                os.write(fd, b"\n")
                self._torn = False
            count = os.write(fd, text)
        except BlockingIOError:
            return 0
        except OSError:  # nobody reads us any more, or the disk is full: the job goes on
            self._torn = self._torn or self._in_line
            self._moved = time.monotonic()
            return None
        self._in_line = text[count - 1] != ord("\n")
        self._moved = time.monotonic()
        return count


def _opened_again(fd: int) -> int | None:
    """Open a pipe again, without blocking, for us alone. Return None for other files and other users' pipes."""
    with contextlib.suppress(OSError):
        if stat.S_ISFIFO(os.fstat(fd).st_mode):
            return os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK)
    return None
