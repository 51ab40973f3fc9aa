"""Connections between the coordinator and each follower that stay open. Opinions are in policy.py.

A line is the connection of a follower's first report, kept. What the two say to one another from then on goes over it,
a line of JSON each: reports, their answers, news. So nobody has to connect for them; and when either process is
killed, its kernel ends the line at once, where silence takes seconds to be believed. A line that cannot be had or
breaks is no harm: reports and news are POSTs, then.
"""

import contextlib
import select
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from entrypoint.callers import MAX_MESSAGE
from entrypoint.events import Event, LineEnded, Unreached
from entrypoint.post import prepare

LONGEST = 1 << 17  # bytes that the kernel takes at once; longer news have a connection of their own
_BLOCK = 1 << 16

Answer = Callable[[bytes], bytes]  # report -> answer; nothing where it is refused
Keep = Callable[[str, socket.socket, Answer], None]  # takes over a connection: (host, connection, who answers)


@dataclass(eq=False)
class _Line:
    host: str
    connection: socket.socket
    answer: Answer
    unread: bytearray = field(default_factory=bytearray)


class Lines:
    """The coordinator's ends, at most one of each follower, read by a thread of their own."""

    def __init__(self, put: Callable[[Event], None]) -> None:
        self._put, self._lock = put, threading.Lock()
        self._of: dict[str, _Line] = {}
        self._by_number: dict[int, _Line] = {}  # file descriptors
        self._poll: select.epoll | None = None

    def keep(self, host: str, connection: socket.socket, answer: Answer) -> None:
        """From now on this is the host's; one that it had is closed, and nothing is said of that."""
        connection.setblocking(False)
        prepare(connection)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * LONGEST)
        line = _Line(host, connection, answer)
        with self._lock:
            if self._poll is None:
                try:
                    poll = select.epoll()
                    threading.Thread(target=self._watch, args=(poll,), name="lines", daemon=True).start()
                except (OSError, RuntimeError):  # no descriptor or thread is left: the host goes on with POSTs
                    connection.close()
                    return
                self._poll = poll
            self._close(host)
            self._of[host] = self._by_number[connection.fileno()] = line
            self._poll.register(connection, select.EPOLLIN)

    def tell(self, host: str, message: bytes) -> bool:
        """Whether the message is on its way to the host. Never waits."""
        with self._lock:
            line = self._of.get(host)
            return line is not None and self._send(line, message)

    def _send(self, line: _Line, message: bytes) -> bool:
        if len(message) > LONGEST:
            return False
        try:
            sent = line.connection.send(message + b"\n")
        except OSError:
            return False
        if sent <= len(message):  # it does not read; what comes next would be read as the rest of this
            self._close(line.host)
            return False
        return True

    def _close(self, host: str) -> None:
        if line := self._of.pop(host, None):
            self._by_number.pop(line.connection.fileno(), None)
            line.connection.close()

    def _watch(self, poll: select.epoll) -> None:
        while True:
            for number, _ in poll.poll():
                with self._lock:
                    line = self._by_number.get(number)
                if line:
                    self._read(line)

    def _read(self, line: _Line) -> None:
        """Answer what has come. Where it is us who end the line, nothing is said of that."""
        try:
            block = line.connection.recv(_BLOCK)
        except BlockingIOError:  # it was another one's, with the same number
            return
        except ConnectionResetError:
            block = b""
        except OSError:  # what we said was not confirmed in time
            self._end(line, Unreached(host=line.host))
            return
        line.unread += block
        whole: list[bytearray] = []
        if b"\n" in block:  # not with each byte of a message that does not end
            *whole, line.unread = line.unread.split(b"\n")
        for message in whole:
            answer = line.answer(bytes(message))
            with self._lock:
                heard = bool(answer) and self._of.get(line.host) is line and self._send(line, answer)
            if not heard:
                self._end(line)
                return
        if not block:
            self._end(line, LineEnded(host=line.host))
        elif len(line.unread) > MAX_MESSAGE:
            self._end(line)

    def _end(self, line: _Line, event: Event | None = None) -> None:
        with self._lock:
            current = self._of.get(line.host) is line
            if current:
                self._close(line.host)
        if current and event:
            self._put(event)


def messages(connection: socket.socket, text: bytes) -> Iterator[bytes]:
    """What is said to a follower over its line, beginning with `text`, until it ends. OSError if the coordinator's
    kernel did not confirm what we said."""
    while True:
        *whole, text = text.split(b"\n")
        yield from whole
        block = b""
        if len(text) <= MAX_MESSAGE:
            with contextlib.suppress(ConnectionResetError):
                block = connection.recv(_BLOCK)
        if not block:
            return
        text += block
