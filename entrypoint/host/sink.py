"""Where output goes: a file descriptor that may be read slowly, or never. A thread waits for it in our place."""

import contextlib
import os
import select
import stat
import threading
import time
from collections import deque

LIMIT = 4 << 20  # bytes that wait, from which on no more should come
MOST = 15 << 20  # bytes that wait, beyond which what comes is counted and not kept
RESERVE = 1 << 20  # bytes beyond that, for what is worth more
STALLED = 2.0  # seconds in which nothing was taken, after which nobody counts on a reader
PATIENCE = 5.0  # seconds at the end in which nothing is taken, until we leave
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
        self._texts: deque[bytes] = deque()
        self._busy = False  # whether a thread has taken some of them
        self._accepted = self._done = 0  # bytes, ever; the first is changed under the lock, the other by who is busy
        self._dropped = self._failed = 0  # likewise
        self._moved = 0.0  # when something was taken last
        self._in_line = self._torn = False  # whether what was written last is part of a line; whether its rest is lost
        self._lock = threading.Lock()
        self._filled, self._emptied = threading.Condition(self._lock), threading.Condition(self._lock)
        self._thread: threading.Thread | None = None

    @property
    def waiting(self) -> int:
        """Bytes that are not written yet."""
        return self._accepted - self._done

    @property
    def lost(self) -> int:
        """Bytes that never will be."""
        return self._dropped + self._failed

    @property
    def is_full(self) -> bool:
        return self.waiting >= LIMIT

    @property
    def is_stalled(self) -> bool:
        return self.waiting > 0 and time.monotonic() > self._moved + STALLED

    def put(self, text: bytes, reserve: int = 0) -> None:
        """Write what is taken at once. The rest waits for `catch_up`, or for `hand_over`."""
        with self._lock:
            if not self.waiting:
                self._moved = time.monotonic()
                if self._own is not None:
                    text = text[self._write(memoryview(text)) :]
            if self.waiting + len(text) > MOST + reserve:
                self._dropped += len(text)
            elif text:
                self._texts.append(text)
                self._accepted += len(text)

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

    def finish(self, patience: float = PATIENCE) -> int:
        """Wait for what is left, as long as somebody takes it, in bounded time; bytes that were not written, ever."""
        began = time.monotonic()
        while self.waiting and time.monotonic() < min(max(began, self._moved) + patience, began + LAST):
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
                self._filled.wait_for(lambda: self._texts and not self._busy)
            self._write_until(None)

    def _write_until(self, until: float | None) -> None:
        """Write what waits, if no other thread is at it."""
        while text := self._take():
            self._give_back(self._write_out(text, until))
            if until is not None and time.monotonic() >= until:
                break

    def _take(self) -> bytes:
        """Texts to write, for one thread at a time; nothing if another one is at it."""
        with self._lock:
            if self._busy or not self._texts:
                return b""
            self._busy = True
            texts = [self._texts.popleft()]
            size = len(texts[0])
            while self._texts and size < _AT_ONCE:
                texts.append(self._texts.popleft())
                size += len(texts[-1])
            return texts[0] if len(texts) == 1 else b"".join(texts)

    def _give_back(self, rest: bytes) -> None:
        with self._lock:
            self._busy = False
            if rest:
                self._texts.appendleft(rest)
            self._emptied.notify_all()

    def _write_out(self, text: bytes, until: float | None = None) -> bytes:
        """Write a text; what is left of it then."""
        room = select.poll()
        room.register(self._fd, select.POLLOUT)
        view = memoryview(text)
        while view:
            left = None if until is None else max(0.0, until - time.monotonic()) * 1000
            if not room.poll(left):
                break
            count = self._write(view)
            view = view[count:]
            self._done += count
        return bytes(view)

    def _write(self, view: memoryview) -> int:
        """Write once; bytes that were taken, or are lost. 0: nobody takes any now, and the file does not wait."""
        fd = self._fd if self._own is None else self._own
        try:
            if self._torn:
                os.write(fd, b"\n")
                self._torn = False
            count = os.write(fd, view[: self._piece])
        except BlockingIOError:
            return 0
        except OSError:  # nobody reads us any more, a full disk: the job goes on
            self._failed += len(view)
            self._torn = self._torn or self._in_line
            self._moved = time.monotonic()
            return len(view)
        self._in_line = view[count - 1] != ord("\n")
        self._moved = time.monotonic()
        return count


def _opened_again(fd: int) -> int | None:
    """A description of a pipe that is ours alone, and does not wait; None for other files, and pipes of other users."""
    with contextlib.suppress(OSError):
        if stat.S_ISFIFO(os.fstat(fd).st_mode):
            return os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK)
    return None
