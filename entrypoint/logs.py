"""Every line that reaches stdout: ours, and those of the children, whole and labelled.

One thread reads the pipes of all children. What is written is always whole lines, so lines of different
processes never mix; each pipe is read in order, so the lines of one process keep theirs. Secrets are masked in
all of them, before anything is written or kept.
"""

import fcntl
import math
import os
import select
import selectors
import sys
import termios
import threading
import time
from dataclasses import dataclass, field

from entrypoint import secrets

_BLOCK = 1 << 16
_LONGEST_LINE = 8 << 20  # bytes of one unfinished line that are kept before it is written as it is
_TAIL = 1 << 14  # bytes of each process's last output that are kept, to explain a failure


@dataclass
class _Pipe:
    prefix: str
    owner: str
    unfinished: bytearray = field(default_factory=bytearray)
    read: float = 0  # bytes; infinite when its end is read


def _unread(fd: int) -> float:
    """Bytes that a pipe holds; infinite if nobody can write to it any more, so that its end is what comes last."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    if any(found & select.POLLHUP for _, found in poll.poll(0)):
        return math.inf
    return int.from_bytes(fcntl.ioctl(fd, termios.FIONREAD, bytes(4)), sys.byteorder)


class Log:
    """Writes to `fd` (stdout). Labels are `[host process]`, or nothing with prefix=False."""

    def __init__(
        self,
        host: str,
        *,
        prefix: bool = True,
        streams: bool = False,
        secret: secrets.Secrets = secrets.NONE,
        fd: int = 1,
    ) -> None:
        self._host, self._prefix, self._streams, self._fd = host, prefix, streams, fd
        self.secret = secret  # for others that write down what happens
        self._write_lock = threading.Lock()
        self._pipes: dict[int, _Pipe] = {}
        self._tails: dict[str, bytes] = {}
        self._selector = selectors.DefaultSelector()
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_reader, False)
        self._selector.register(self._wake_reader, selectors.EVENT_READ)
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._read_pipes, name="log", daemon=True)
        self._thread.start()

    def say(self, message: str) -> None:
        """One event of ours, as a line (or several, each labelled)."""
        label = f"[{self._host}] " if self._prefix else ""
        lines = self.secret.mask(message).splitlines() or [""]
        self._write("".join(f"{label}{line}\n" for line in lines).encode("utf-8", "replace"))

    def open_pipes(self, process: str) -> tuple[int, int]:
        """Ends to write for stdout and stderr of a process; the caller closes them after handing them on."""
        with self._changed:
            self._tails[process] = b""
        if not self._streams:
            out = self._open(process, process)
            return out, os.dup(out)
        return self._open(process, f"{process} stdout"), self._open(process, f"{process} stderr")

    def tail(self, process: str) -> str:
        """The last output of a process, at most some thousand characters."""
        with self._changed:
            unfinished = b"".join(pipe.unfinished for pipe in self._pipes.values() if pipe.owner == process)
            return (self._tails.get(process, b"") + self.secret.mask_bytes(unfinished)).decode("utf-8", "replace")

    def drain(self, process: str | None = None) -> None:
        """Wait until all that was printed until now (by one process) is read and written.

        Not until the pipes end: an orphan may keep them open, and print, for ever. And for as long as whoever reads our
        stdout takes: the last words of a process say why it failed.
        """
        with self._changed:
            asked = [(p, p.read + _unread(fd)) for fd, p in self._pipes.items() if process in (None, p.owner)]
            while any(pipe.read < printed for pipe, printed in asked) and self._thread.is_alive():
                self._changed.wait(1.0)

    def flush_unfinished(self) -> None:
        """Write what processes printed without an end of line, when nobody will end it any more."""
        with self._changed:
            for pipe in self._pipes.values():
                if pipe.unfinished:
                    self._emit(pipe, bytes(pipe.unfinished) + b"\n")
                    pipe.unfinished.clear()

    def _open(self, owner: str, label: str) -> int:
        reader, writer = os.pipe()
        prefix = f"[{self._host} {label}] " if self._prefix else ""
        with self._changed:
            self._pipes[reader] = _Pipe(prefix, owner)
        os.write(self._wake_writer, b"+")
        return writer

    def _read_pipes(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.fd == self._wake_reader:
                    self._register_new()
                else:
                    self._read(key.fd)

    def _register_new(self) -> None:
        try:
            os.read(self._wake_reader, _BLOCK)
        except BlockingIOError:
            pass
        registered = self._selector.get_map()
        with self._changed:
            new = [fd for fd in self._pipes if fd not in registered]
        for fd in new:
            self._selector.register(fd, selectors.EVENT_READ)

    def _read(self, fd: int) -> None:
        with self._changed:
            block = os.read(fd, _BLOCK)  # under the lock, so that what is read is written, too
            pipe = self._pipes[fd]
            whole, newline, rest = block.rpartition(b"\n")
            if newline:
                self._emit(pipe, bytes(pipe.unfinished) + whole + b"\n")
                pipe.unfinished[:] = rest
            else:
                pipe.unfinished += rest
            if not block and pipe.unfinished:
                self._emit(pipe, bytes(pipe.unfinished) + b"\n")
                pipe.unfinished.clear()
            elif len(pipe.unfinished) > _LONGEST_LINE:
                self._emit_most(pipe)
            pipe.read += len(block) or math.inf
            if not block:
                self._selector.unregister(fd)
                os.close(fd)
                del self._pipes[fd]
            self._changed.notify_all()

    def _emit_most(self, pipe: _Pipe) -> None:
        """Write a line that does not end, but for what may be the first part of a secret."""
        masked = self.secret.mask_bytes(bytes(pipe.unfinished))
        cut = max(0, len(masked) - max(0, self.secret.longest - 1))
        pipe.unfinished[:] = masked[cut:]
        self._emit(pipe, masked[:cut] + b"\n")

    def _emit(self, pipe: _Pipe, lines: bytes) -> None:
        lines = self.secret.mask_bytes(lines)
        self._tails[pipe.owner] = (self._tails.get(pipe.owner, b"") + lines[-_TAIL:])[-_TAIL:]
        text = lines.decode("utf-8", "replace")
        if pipe.prefix:
            text = pipe.prefix + text[:-1].replace("\n", "\n" + pipe.prefix) + "\n"
        self._write(text.encode("utf-8"))

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        with self._write_lock:
            while view:
                try:
                    view = view[os.write(self._fd, view) :]
                except BlockingIOError:
                    time.sleep(0.001)  # someone made our stdout non-blocking; wait for its reader
                except OSError:
                    return  # nobody reads us any more; the job goes on
