"""Connections between the coordinator and each follower that stay open. Opinions are in policy.py.

A line is the connection of a report, kept. The coordinator says its news over it, so that nobody has to connect for
them; and when either process is killed, its kernel ends the line at once, where silence takes seconds to be believed.
A line that cannot be had or breaks is no harm: news come with the answer to each report, too.
"""

import contextlib
import select
import socket
import threading
from collections.abc import Callable, Iterator

from entrypoint.callers import MAX_MESSAGE
from entrypoint.events import Event, LineEnded, Unreached

UNHEARD = 1000  # milliseconds in which the other's kernel is to confirm what we said, however busy its processes are
LONGEST = 1 << 17  # bytes that the kernel takes at once; longer news have a connection of their own
_BLOCK = 1 << 16


class Lines:
    """The coordinator's ends, at most one of each follower. They are watched by a thread of their own."""

    def __init__(self, put: Callable[[Event], None]) -> None:
        self._put, self._lock = put, threading.Lock()
        self._of: dict[str, socket.socket] = {}
        self._hosts: dict[int, str] = {}  # by file descriptor
        self._poll: select.epoll | None = None

    def keep(self, host: str, connection: socket.socket) -> None:
        """From now on this is the host's; one that it had is closed, and nothing is said of that."""
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNHEARD)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * LONGEST)
        with self._lock:
            if self._poll is None:
                self._poll = select.epoll()
                threading.Thread(target=self._watch, args=(self._poll,), name="lines", daemon=True).start()
            self._close(host)
            self._of[host], self._hosts[connection.fileno()] = connection, host
            self._poll.register(connection, select.EPOLLIN)

    def tell(self, host: str, message: bytes) -> bool:
        """Whether the message, one line, is on its way to the host. Never waits."""
        with self._lock:
            connection = self._of.get(host)
            if connection is None or len(message) > LONGEST:
                return False
            try:
                sent = connection.send(message + b"\n")
            except OSError:
                return False
            if sent <= len(message):  # it does not read; what comes next would be read as the rest of this
                self._close(host)
                return False
            return True

    def _close(self, host: str) -> None:
        if connection := self._of.pop(host, None):
            self._hosts.pop(connection.fileno(), None)
            connection.close()

    def _watch(self, poll: select.epoll) -> None:
        while True:
            for number, _ in poll.poll():
                with self._lock:
                    host = self._hosts.get(number, "")
                    ended = host and self._look(host)
                if ended:
                    self._put(ended)

    def _look(self, host: str) -> Event | None:
        """What has become of a line that has something to say, were it only its end: followers say nothing over it."""
        try:
            self._of[host].recv(1)
            ended: Event = LineEnded(host=host)
        except BlockingIOError:  # it was another one's, with the same number
            return None
        except ConnectionResetError:
            ended = LineEnded(host=host)
        except OSError:  # what we said was not confirmed in time
            ended = Unreached(host=host)
        self._close(host)
        return ended


def messages(connection: socket.socket, text: bytes) -> Iterator[bytes]:
    """What is said to a follower over its line, beginning with `text`, until the line ends."""
    while True:
        *whole, text = text.split(b"\n")
        yield from whole
        block = b""
        if len(text) <= MAX_MESSAGE:
            with contextlib.suppress(OSError):
                block = connection.recv(_BLOCK)
        if not block:
            return
        text += block
