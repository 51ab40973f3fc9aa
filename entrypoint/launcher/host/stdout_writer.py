"""Where output goes: a file descriptor that may be read slowly, or never. A thread waits for it in our place."""

import contextlib
import os
import select
import stat
import threading
import time
from collections.abc import Callable

LIMIT = 4 << 20  # bytes that wait, from which on no more should come
MOST = 15 << 20  # bytes that wait, beyond which what comes is counted and not kept
RESERVE = 1 << 20  # bytes beyond that, for what is worth more
STALLED = 2.0  # seconds in which nothing was taken, after which nobody counts on a reader
PATIENCE = 20.0  # seconds at the end in which nothing is taken, until we leave; the last lines are the best
HURRY = 5.0  # the same, where SageMaker waits for our end
LAST = 60.0  # seconds at the end, even if something is taken
ALONE = 0.2  # seconds that whoever has something to write waits for a reader, where no thread can be had
_AT_ONCE = 1 << 16  # bytes that are written with one call


class Sink:
    """Writes to `fd`. Whoever puts something waits for nobody; what is put at once stays together, in order.

    A pipe is opened once more, since not to wait is a property that our `fd` shares with all who have it. That spares
    the thread all work while there is a reader. What cannot be opened is written by the thread alone.
    """

    def __init__(self, fd: int) -> None:
        self._fd, self._own = fd, _opened_again(fd)
        # Of PIPE_BUF a pipe takes all or nothing: what it did not take is known exactly.
        self._piece = select.PIPE_BUF if self._own is None else _AT_ONCE
        self._buffer = bytearray()  # what waits, with what is being written; changed under the lock
        self.lost = 0  # bytes that never will be written; likewise
        self._moved = 0.0  # when something was taken last
        self._in_line = self._torn = False  # whether what was written last is part of a line; whether its rest is lost
        self._lock, self._turn = threading.Lock(), threading.Lock()  # the second: to write what waits
        self._filled, self._emptied = threading.Condition(self._lock), threading.Condition(self._lock)
        self._thread: threading.Thread | None = None

    @property
    def waiting(self) -> int:
        """Bytes that are not written yet."""
        return len(self._buffer)

    @property
    def is_full(self) -> bool:
        return self.waiting >= LIMIT

    @property
    def is_stalled(self) -> bool:
        return self.waiting > 0 and time.monotonic() > self._moved + STALLED

    def put(self, text: bytes, reserve: int = 0) -> None:
        """Write what is taken at once. The rest waits for `catch_up`, or for `hand_over`."""
        with self._lock:
            count: int | None = 0
            if not self._buffer:
                self._moved = time.monotonic()
                count = self._write(text) if self._own is not None else 0
            if count is None or self.waiting + len(text) - count > MOST + reserve:
                self.lost += len(text) - (count or 0)
            else:
                self._buffer += text[count:]

    def hand_over(self) -> None:
        """Leave what waits to the thread."""
        if not self.waiting:
            return
        with self._lock:
            self._filled.notify()
            if self._thread is None:
                thread = threading.Thread(target=self._write_all, name="sink", daemon=True)
                with contextlib.suppress(RuntimeError):  # no more threads
                    thread.start()
                    self._thread = thread
        if self._thread is None:  # better to wait a moment for a reader than to say nothing
            self._write_until(time.monotonic() + (0.0 if self.is_stalled else ALONE))

    def catch_up(self, seconds: float) -> None:
        """Write what waits, as long as that is quick. The thread, once it has begun, goes on until nothing waits."""
        until = time.monotonic() + seconds
        if self._own is not None:
            self._write_until(until)
        self.hand_over()
        self.wait_for_room(max(0.0, until - time.monotonic()), _AT_ONCE)

    def wait_for_room(self, seconds: float, limit: int = LIMIT) -> None:
        """Wait until less than `limit` waits, if that comes within so many seconds."""
        with self._lock:
            self._emptied.wait_for(lambda: self.waiting < limit, seconds)

    def finish(self, patience: float = PATIENCE, hurries: Callable[[], bool] = bool) -> int:
        """Wait for what is left, as long as somebody takes it, in bounded time; bytes that were not written, ever.

        `hurries` says whether SageMaker waits for our end by now.
        """
        began = time.monotonic()
        while self.waiting and time.monotonic() < began + LAST:
            if time.monotonic() >= max(began, self._moved) + (HURRY if hurries() else patience):
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
        """Write what waits; with a limit of time, only if no other thread is at it."""
        if not self._turn.acquire(blocking=until is None):
            return
        room = select.poll()
        room.register(self._fd, select.POLLOUT)
        left: float | None = None
        while left != 0 and (text := self._buffer[: self._piece]):
            if until is not None:
                left = max(0.0, until - time.monotonic()) * 1000
            if not room.poll(left):
                break
            count = self._write(text)
            with self._lock:
                if count is None:  # whole lines: what comes after a part of one is lost with it
                    count = len(self._buffer)
                    self.lost += count
                del self._buffer[:count]
                self._emptied.notify_all()
        self._turn.release()

    def _write(self, text: bytes | bytearray) -> int | None:
        """Write once; bytes that were taken: none, where nobody takes any now. None: it is lost."""
        fd = self._fd if self._own is None else self._own
        try:
            if self._torn:
                os.write(fd, b"\n")
                self._torn = False
            count = os.write(fd, text)
        except BlockingIOError:
            return 0
        except OSError:  # nobody reads us any more, a full disk: the job goes on
            self._torn = self._torn or self._in_line
            self._moved = time.monotonic()
            return None
        self._in_line = text[count - 1] != ord("\n")
        self._moved = time.monotonic()
        return count


def _opened_again(fd: int) -> int | None:
    """A description of a pipe that is ours alone, and does not wait; None for other files, and pipes of other users."""
    with contextlib.suppress(OSError):
        if stat.S_ISFIFO(os.fstat(fd).st_mode):
            return os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK)
    return None
