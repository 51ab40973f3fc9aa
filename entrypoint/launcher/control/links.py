"""Keep connections between the coordinator and each follower open. The policy judges what happens to them.

A link is the connection of a follower's first report, kept open. Later messages go over it, each a line of JSON:
reports, their answers, news. So no later message needs a connection of its own. And if either process is killed, its
kernel closes the link at once, while silence counts as a loss only after seconds. Without a link nothing is lost:
reports are POSTs then, and their answers bring the news.
"""

import contextlib
import selectors
import socket
import threading
from collections.abc import Callable, Iterator

from entrypoint.base.values import State, fresh
from entrypoint.launcher.control.access import MESSAGE_BYTES
from entrypoint.launcher.control.client import prepare
from entrypoint.launcher.policy.events import Event, LinkEnded, Unreached

LONGEST_BYTES = 1 << 17  # bytes that the kernel takes at once; longer news come with the answer to a POST
_BLOCK = 1 << 16

Answer = Callable[[bytes], bytes]  # report -> answer; b"" if it is refused
# Takes over a connection: (host, connection, function that answers, answer that was sent)
Keep = Callable[[str, socket.socket, Answer, bytes], None]


class _Link(State):
    host: str
    connection: socket.socket
    answer: Answer
    unread: bytearray = fresh(bytearray)
    hung_up: bool = False  # seen when something was sent, perhaps before it is read


class Links:
    """Hold the coordinator's links, at most one for each follower. A thread of their own reads them."""

    def __init__(self, put: Callable[[Event], None]) -> None:
        self._put, self._lock = put, threading.Lock()
        self._of: dict[str, _Link] = {}
        self._at: dict[str, str] = {}  # host -> the address of its last link
        self._selector: selectors.BaseSelector | None = None

    def keep(self, host: str, connection: socket.socket, answer: Answer) -> None:
        """Take over a host's connection. An older one is closed without an event."""
        with contextlib.suppress(OSError), self._lock:  # if it was reset by now, its reader reports that
            self._at[host] = str(connection.getpeername()[0])
        connection.setblocking(False)
        prepare(connection)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * LONGEST_BYTES)
        link = _Link(host=host, connection=connection, answer=answer)
        with self._lock:
            if self._selector is None:
                try:
                    selector = selectors.DefaultSelector()
                    threading.Thread(target=self._watch, args=(selector,), name="links", daemon=True).start()
                except (OSError, RuntimeError):  # no descriptor or thread is left: the host goes on with POSTs
                    connection.close()
                    return
                self._selector = selector
            self._close(host)
            self._of[host] = link
            self._selector.register(connection, selectors.EVENT_READ, link)

    def address(self, host: str) -> str | None:
        """Return the address of a host's last link; None if it never had one."""
        with self._lock:
            return self._at.get(host)

    def send(self, host: str, message: bytes) -> bool:
        """Send a message to a host if the socket accepts it at once. Return whether it was sent."""
        with self._lock:
            link = self._of.get(host)
            return link is not None and self._send(link, message)

    def _send(self, link: _Link, message: bytes) -> bool:
        if len(message) > LONGEST_BYTES:
            return False
        try:
            sent = link.connection.send(message + b"\n")
        except OSError as error:
            link.hung_up = isinstance(error, ConnectionError)
            return False
        if sent <= len(message):  # the host does not read; the next message would be taken for the rest of this
            self._close(link.host)
            return False
        return True

    def _close(self, host: str) -> None:
        if self._selector and (link := self._of.pop(host, None)):
            self._selector.unregister(link.connection)
            link.connection.close()

    def _watch(self, selector: selectors.BaseSelector) -> None:
        while True:
            for key, _ in selector.select():
                self._read(key.data)

    def _read(self, link: _Link) -> None:
        """Answer the reports that have come. Put no event if we close the link ourselves."""
        try:
            block = link.connection.recv(_BLOCK)
        except BlockingIOError:  # the descriptor belonged to another link before
            return
        except ConnectionResetError:
            block = b""
        except OSError:  # what we sent was not confirmed in time
            self._end(link, Unreached(host=link.host))
            return
        link.unread += block
        whole: list[bytearray] = []
        if b"\n" in block:  # not with each byte of a message that does not end
            *whole, link.unread = link.unread.split(b"\n")
        for message in whole:
            answer = link.answer(bytes(message))
            with self._lock:
                sent = bool(answer) and self._of.get(link.host) is link and self._send(link, answer)
            if not sent:
                self._end(link, LinkEnded(host=link.host) if link.hung_up else None)
                return
        if not block:
            self._end(link, LinkEnded(host=link.host))
        elif len(link.unread) > MESSAGE_BYTES:
            self._end(link)

    def _end(self, link: _Link, event: Event | None = None) -> None:
        with self._lock:
            current = self._of.get(link.host) is link
            if current:
                self._close(link.host)
        if current and event:
            self._put(event)


def messages(connection: socket.socket, text: bytes) -> Iterator[bytes]:
    """Yield the messages over a follower's link. Raise OSError if the coordinator's kernel confirmed nothing."""
    while True:
        *whole, text = text.split(b"\n")
        yield from whole
        block = b""
        if len(text) <= MESSAGE_BYTES:
            with contextlib.suppress(ConnectionResetError):
                block = connection.recv(_BLOCK)
        if not block:
            return
        text += block
