"""Write every line that reaches stdout: the launcher's lines and those of its processes, whole and labelled.

One thread reads the pipes of all processes; the sink's thread writes. So nothing waits for the reader of our stdout,
except the processes when too much output is unwritten. Whole lines are written at a time, so lines of different
processes never mix; each pipe is read in order, so the lines of one process keep their order. A line without an end is
shown after a moment as it is, and again as a whole when it has grown. Secrets are masked before anything is written or
kept.
"""

import codecs
import fcntl
import os
import re
import select
import threading
import time
from collections.abc import Callable

from entrypoint.base import secrets
from entrypoint.base.values import State, fresh
from entrypoint.launcher.host.stdout_writer import AT_ONCE_BYTES, PATIENCE_SECONDS, RESERVE_BYTES, Sink
from entrypoint.launcher.outcome.outcome import LAST_BYTES, Tail

_BLOCK = 1 << 16
_LONGEST_LINE_BYTES = 8 << 20  # bytes of an unfinished line that are kept; a longer one is written as it is
_SHOW_SECONDS = 1.0  # seconds after which a line without an end is shown, and shown again if it has grown
_LOOK_SECONDS = 0.25  # seconds between two checks for such lines
_AGAIN_BYTES = 1 << 11  # bytes of such a line up to which it is shown again from its beginning
_PACE_SECONDS = 0.02  # seconds without reading if what was read is not written yet: this makes few large reads
_PAUSE_SECONDS = 0.001  # seconds without reading from processes that print little and often: likewise
_LITTLE = _BLOCK // 8  # bytes of all pipes in such a moment that count as little
_FULL_SECONDS = 0.05  # seconds between two checks, while nobody reads stdout, for processes that must not be held up
_OVER = re.compile(rb"\x08*(\r\n|\r|\n)")  # what follows the state of a progress bar, or a line
_BACK = re.compile(rb"(?<!\x08)\x08+\r")  # Keras goes back in a line so; in a log, backspaces only show


class _Pipe(State):
    prefix: bytes
    owner: str
    unfinished: bytearray = fresh(bytearray)  # what has no end of line yet
    since: float = 0.0  # when that began, or was shown
    grown: bool = False  # whether it has grown since then
    shown: int = 0  # bytes at its beginning that stand in the log as a line
    may_lose: bool = False  # its process is to end: its output must not hold it up


class Log:
    """Write lines to `fd`, with labels `[host process]` unless prefix=False. Only `finish` waits for its reader."""

    def __init__(
        self,
        host: str,
        *,
        prefix: bool = True,
        streams: bool = False,
        secret: secrets.Secrets = secrets.NONE,
        fd: int = 1,
    ) -> None:
        self._host, self._prefix, self._streams = host, prefix, streams
        self.secret = secret  # for other writers of what happens
        # Gets what processes print, and our own lines (as "").
        self.show: Callable[[str, bytes], None] = lambda process, lines: None
        self._sink = Sink(fd)
        self._reported_lost = 0  # lost bytes that were reported
        self._lock = threading.Lock()  # protects the attributes below
        self._pipes: dict[int, _Pipe] = {}
        self._tails: dict[str, Tail] = {}
        self._grows = False  # whether part of a line is not shown yet
        self._poll = select.epoll()  # what other threads register here, the reading thread notices at once
        self._thread: threading.Thread | None = None

    def print(self, message: str) -> None:
        """Log a message of the launcher as a line, or as several labelled lines."""
        label = f"[{self._host}] " if self._prefix else ""
        lines = self.secret.mask(message).splitlines() or [""]
        self._write("".join(f"{label}{line}\n" for line in lines).encode("utf-8", "replace"), RESERVE_BYTES)
        self.show("", "\n".join(lines).encode("utf-8", "replace"))
        self._sink.hand_over()

    def write(self, line: str) -> None:
        """Write a line without a label, for a program that reads our log."""
        self._write(f"{self.secret.mask(line)}\n".encode("utf-8", "replace"), RESERVE_BYTES)
        self._sink.hand_over()

    def open_pipes(self, process: str) -> tuple[int, int]:
        """Open a process's stdout and stderr for writing. The caller passes them to the process and closes them."""
        with self._lock:
            self._tails[process] = Tail()
            if self._thread is None:
                thread = threading.Thread(target=self._read_pipes, name="log", daemon=True)
                thread.start()
                self._thread = thread
        if not self._streams:
            out = self._open(process, process)
            return out, os.dup(out)
        return self._open(process, f"{process} stdout"), self._open(process, f"{process} stderr")

    def tail(self, process: str) -> str:
        """Return some thousand characters: the beginning of a process's last traceback, and its last output."""
        with self._lock:
            lines = [bytes(pipe.unfinished) for pipe in self._pipes.values() if pipe.owner == process]
            # Masked before the cut: half a secret is not recognised.
            unfinished = b"".join(self.secret.mask_bytes(line)[-LAST_BYTES:] for line in lines)
            return self._tails.get(process, Tail()).whole(unfinished).decode("utf-8", "replace")

    def drain(self, process: str | None = None) -> None:
        """Read all output until now, of one process or of all, even if it cannot be written yet.

        It reads as much as a pipe can hold, not until its end: an orphan may keep it open, and print, for ever.
        """
        with self._lock:
            for fd in [fd for fd, pipe in self._pipes.items() if process in (None, pipe.owner)]:
                left = fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ)
                while left >= 0 and (count := self._read(fd)):
                    left -= count
        self._sink.hand_over()

    def hold_up_no_more(self, process: str) -> None:
        """Never block a process from now on: read its output even if our stdout is not read and the output is lost."""
        with self._lock:
            for pipe in self._pipes.values():
                pipe.may_lose = pipe.may_lose or pipe.owner == process

    def flush_unfinished(self) -> None:
        """Write lines that processes left without an end."""
        with self._lock:
            for pipe in self._pipes.values():
                self._end_line(pipe)
        self._sink.hand_over()

    def finish(self, patience: float = PATIENCE_SECONDS, hurries: Callable[[], bool] = bool) -> int:
        """Wait until all is written, or nothing was taken for `patience` seconds. Return how many bytes were lost."""
        return self._sink.finish(patience, hurries)

    def _open(self, owner: str, label: str) -> int:
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        prefix = f"[{self._host} {label}] " if self._prefix else ""
        with self._lock:
            self._pipes[reader] = _Pipe(prefix=prefix.encode("utf-8", "replace"), owner=owner)
            self._poll.register(reader, select.EPOLLIN)
        return writer

    # --- reading ---

    def _read_pipes(self) -> None:
        look = rested = 0.0
        while True:
            count = 0
            for fd, _ in self._poll.poll(_LOOK_SECONDS if self._grows else None):
                if self._sink.is_full:
                    break
                with self._lock:
                    count += self._read(fd)
            if self._grows and time.monotonic() >= look:
                look = time.monotonic() + _LOOK_SECONDS
                self._show_unfinished()
            if self._sink.waiting:
                self._sink.hand_over()
                self._sink.wait_for_space(_PACE_SECONDS, AT_ONCE_BYTES)
            if self._sink.is_full:
                self._wait_for_space()
            elif 0 < count < _LITTLE:
                # The first line after a pause is not delayed.
                if time.monotonic() < rested + 2 * _PAUSE_SECONDS:
                    time.sleep(_PAUSE_SECONDS)
                rested = time.monotonic()

    def _wait_for_space(self) -> None:
        """Wait until the output buffer has room, and let the pipes fill up.

        Read on from processes whose output may be lost.
        """
        read = 0
        while self._sink.is_full:
            self._sink.wait_for_space(0 if read else _FULL_SECONDS)
            self._sink.hand_over()  # without a thread for it, this call writes
            read = 0
            if self._sink.is_stalled:
                with self._lock:
                    read = sum([self._read(fd) for fd, pipe in list(self._pipes.items()) if pipe.may_lose])

    def _read(self, fd: int) -> int:
        """Read once from a pipe. Return how many bytes were read; 0 if it is empty or has ended."""
        pipe = self._pipes.get(fd)
        if pipe is None:  # another thread was faster
            return 0
        try:
            block = os.read(fd, _BLOCK)
        except BlockingIOError:  # likewise
            return 0
        if not block:
            self._end_line(pipe)
            self._poll.unregister(fd)
            os.close(fd)
            del self._pipes[fd]
            return 0
        whole, newline, rest = block.rpartition(b"\n")
        if newline:
            self._emit(pipe, bytes(pipe.unfinished) + whole + newline)
        if rest:
            if not pipe.unfinished:
                pipe.since = time.monotonic()
            pipe.unfinished += rest
            pipe.grown = self._grows = True
            if len(pipe.unfinished) > _LONGEST_LINE_BYTES:
                self._show(pipe)
        return len(block)

    # --- lines ---

    def _emit(self, pipe: _Pipe, lines: bytes) -> None:
        """Write whole lines. The first line begins with the unfinished text of the last read."""
        masked = self.secret.mask_bytes(lines)
        self._tails[pipe.owner].add(masked)
        if pipe.shown:
            masked = self.secret.mask_bytes(_not_shown(lines, pipe.shown))
        pipe.unfinished.clear()
        pipe.grown, pipe.shown = False, 0
        self._write_labelled(pipe, masked)

    def _end_line(self, pipe: _Pipe) -> None:
        if pipe.unfinished:
            self._emit(pipe, bytes(pipe.unfinished) + b"\n")

    def _show_unfinished(self) -> None:
        """Show lines without an end, such as progress bars."""
        with self._lock:
            for pipe in self._pipes.values():
                if pipe.grown and time.monotonic() >= pipe.since + _SHOW_SECONDS and not self._sink.is_stalled:
                    self._show(pipe)
            self._grows = any(pipe.grown for pipe in self._pipes.values())

    def _show(self, pipe: _Pipe) -> None:
        """Write a line that has no end yet. Hold back the possible beginning of a secret.

        The text after its last carriage return may still grow. Then it is shown again from its beginning, so that a
        number in it is found whole. If it is long, only the added text is shown, as a line of its own.
        """
        line = bytes(pipe.unfinished)
        new = _not_shown(line, pipe.shown)
        masked = self.secret.mask_bytes(new)
        state = line[line.rfind(b"\r") + 1 :]
        is_long = len(state) > _AGAIN_BYTES
        sure = masked[: len(masked) - max(self.secret.open_end(masked, names=is_long), _open_character(masked))]
        if is_long:
            over = self.secret.mask_bytes(line[: len(line) - len(new)]) + sure
            state, pipe.shown = masked[len(sure) :], 0
        else:
            over = self.secret.mask_bytes(line[: len(line) - len(state)])
            pipe.shown = len(state) if sure == masked else 0
        self._tails[pipe.owner].add(over)
        pipe.unfinished[:] = state
        pipe.since, pipe.grown = time.monotonic(), False
        if text := sure.strip(b"\r"):
            self._write_labelled(pipe, text + b"\n")

    # --- writing ---

    def _write_labelled(self, pipe: _Pipe, lines: bytes) -> None:
        if lines:
            text = _BACK.sub(b"\r", lines) if b"\b" in lines else lines
            if not text.isascii():
                text = text.decode("utf-8", "replace").encode("utf-8")
            self.show(pipe.owner, text)
            if pipe.prefix:
                text = pipe.prefix + text.replace(b"\n", b"\n" + pipe.prefix, text.count(b"\n") - 1)
            self._write(text)

    def _write(self, text: bytes, reserve: int = 0) -> None:
        lost = self._sink.lost
        if lost > self._reported_lost and not self._sink.is_full:
            self._reported_lost, missing = lost, lost - self._reported_lost
            self.print(f"{missing} bytes of output are missing here: they could not be written")
        self._sink.put(text, reserve)


def _not_shown(text: bytes, shown: int) -> bytes:
    """Return the rest of a text whose beginning is in the log; the whole text if that line has grown."""
    over = _OVER.match(text, shown) if shown else None
    return text[over.end() :] if over else text


def _open_character(text: bytes) -> int:
    """Return how many bytes at the end belong to a character that is not complete."""
    end = text[-4:]
    return len(end) - codecs.utf_8_decode(end, "replace", False)[1]
