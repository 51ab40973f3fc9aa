"""Listen for the control channel with waitress, and limit who may connect and for how long.

Limits apply before a thread or the application has any work: connections a second and open connections of each host and
of all strangers together, the size of a request, and the time that it may take to arrive. A connection has one request.
A follower's connection may stay open after its first report; then links.py takes it over, with a limit of its own.

Requests of hosts are answered by the thread that reads them: they never wait, and a thousand hosts may call at once.
Requests of people may have to wait for the supervisor, and have threads.

Waitress documents none of this as an interface; the image pins its version. We use what the tasks of a channel use:
`requests`, `write_soon`, `close_when_flushed`, `will_close`; and `total_outbufs_len`, since nothing else shows whether
all was sent. We also use the server's `active_channels`, and the methods that are replaced here.
"""

import errno
import resource
import socket
import threading
import time
from collections import Counter
from functools import partial
from http import HTTPStatus
from typing import Any

from waitress.channel import HTTPChannel
from waitress.server import TcpWSGIServer
from waitress.task import ThreadedTaskDispatcher

from entrypoint.launcher.control.access import (
    BURST,
    MESSAGE_BYTES,
    OPEN,
    RATE,
    Bucket,
    Limits,
)
from entrypoint.launcher.control.client import message_in
from entrypoint.launcher.control.handlers import RECORD, TOKEN_KEY, Control
from entrypoint.launcher.control.host_names import canonical
from entrypoint.launcher.control.links import LONGEST_BYTES, Keep
from entrypoint.launcher.host.resource_limits import NAP_SECONDS, Shortage

_HEAD_BYTES = 1 << 14  # bytes
_LONGEST_SECONDS = 10.0  # seconds from connecting to the answer, even if a caller keeps sending single bytes
THREADS = 4  # for requests of people, started with the first; two of them may wait for the supervisor
_MOST = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2  # descriptors, for connections that stay open
_AT_ONCE = 64  # connections that are taken in a row, so that those in the kernel's queue do not wait for a slow one


class _Channel(HTTPChannel):
    """Serve one request per connection. Bytes that follow the first request are not read."""

    party: str | None = None
    came: float  # on the monotonic clock, since the other one may be set

    def handle_read(self) -> None:
        super().handle_read()
        if self.requests and _is_quick(self):
            request = self.requests.pop()
            shown, wanted = request.headers.get(TOKEN_KEY, ""), request.headers.get("CONNECTION", "")
            body = request.get_body_stream().read()
            request.close()
            self._answer(request.path, wanted.lower() == "keep-alive", shown, body)

    def received(self, data: bytes) -> bool:
        """Answer a request of client.py that came in one piece. waitress's parser, for all others, costs more."""
        message = None if self.request or self.requests else message_in(data)
        if message is None:
            return bool(super().received(data))
        self._answer(*message)
        return True

    def _answer(self, path: str, stay: bool, shown: str, body: bytes) -> None:
        server = self.server
        server.limits.of(self.party or "").charge(len(body))
        code, text, who = server.control.answer("POST", path, self.addr[0], shown, body)
        stays = stay and who and server.keep and len(text) <= LONGEST_BYTES and self.socket.fileno() < _MOST
        head = (
            f"HTTP/1.1 {code} {HTTPStatus(code).phrase}\r\nConnection: {'keep-alive' if stays else 'close'}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
        )
        self.write_soon(head.encode() + text)  # as a task's thread would, but without one
        self.handle_write()
        if not self.connected:
            return
        if stays and not self.total_outbufs_len:  # links.py reads it from now on
            link = socket.socket(self.socket.family, self.socket.type, fileno=self.socket.detach())
            self.handle_close()
            server.keep(who, link, partial(server.answer_again, Bucket(RATE, BURST), self.addr[0], shown), text)
        else:  # if the follower does not read, it may ask again
            self.close_when_flushed = True
            self.handle_write()

    def service(self) -> None:
        request = self.requests[0]
        request.headers["CONNECTION"] = "close"
        self.server.limits.of(self.party or "").charge(request.content_length)
        super().service()

    def del_channel(self, map: Any = None) -> None:
        super().del_channel(map)
        self.server.left(self)


def _listening(address: str, port: int) -> socket.socket:
    """Listen on one address, or on all IPv4 and IPv6 addresses. Raise OSError if it fails."""
    if not address and socket.has_dualstack_ipv6():
        try:
            return socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:  # else IPv6 is switched off
                raise
    return socket.create_server((address, port))


def _has_hung_up(connection: socket.socket) -> bool:
    """Return whether the caller has closed its connection without a request, as a check of the port does."""
    try:
        return not connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False


def _is_quick(channel: _Channel) -> bool:
    request = channel.requests[0]
    return not request.error and request.command == "POST" and not request.path.startswith(RECORD)


class ControlServer(TcpWSGIServer):
    """Run waitress with limits for callers. Raise OSError if it cannot listen. `keep` takes connections over."""

    channel_class = _Channel

    def __init__(self, control: Control, shortage: Shortage, address: str, port: int, keep: Keep | None = None) -> None:
        self.control, self._shortage, self.keep = control, shortage, keep
        self.limits = Limits(control.names.hosts_at)
        self._open, self._lock = Counter[str](), threading.Lock()
        self._look_at = 0.0
        self._polled: dict[int, Any] = {}  # by file descriptor: this server and its channels
        opened = _listening(address, port)
        super().__init__(  # `_sock` is how waitress itself passes an open socket, as `sockets` of `serve`
            control, map=self._polled, dispatcher=ThreadedTaskDispatcher(), _sock=opened, bind_socket=False,
            sockinfo=(opened.family, opened.type, opened.proto, opened.getsockname()), connection_limit=2000,
            backlog=4096, cleanup_interval=1, max_request_body_size=MESSAGE_BYTES,
            inbuf_overflow=2 * MESSAGE_BYTES, max_request_header_size=_HEAD_BYTES, asyncore_use_poll=True, ident="",
        )  # fmt: skip

    def handle_accept(self) -> None:
        for _ in range(_AT_ONCE):
            if not self._accept_one():
                return

    def _accept_one(self) -> bool:
        """Take one connection from the kernel's queue and serve or close it. Return False if there is none."""
        try:
            taken = self.accept()
            if taken is None:
                return False
            self._shortage.over()
            connection, (caller, port, *_) = taken
            address = canonical(caller), port
            party = self.limits.party(address[0])
            if self._open[party] < OPEN and self.limits.of(party).take() and not _has_hung_up(connection):
                self.set_socket_options(connection)
                with self._lock:
                    self._open[party] += 1
                    channel = self.channel_class(self, connection, address, self.adj, map=self._polled)
                    channel.party, channel.came = party, time.monotonic()
            else:
                connection.close()
        except OSError as error:  # it was closed already, or no file descriptor is left
            if self._shortage.note(error):
                time.sleep(NAP_SECONDS)
            return False
        return True

    def answer_again(self, limit: Bucket, caller: str, shown: str, report: bytes) -> bytes:
        """Return the answer to one more report over a kept connection; b"" if it is refused.

        The connection has a limit of its own, so that nothing else on that host can use up what its launcher needs.
        """
        if not limit.take(len(report)):
            return b""
        code, text, _ = self.control.answer("POST", "/report", caller, shown, report)
        return text if code == HTTPStatus.OK else b""

    def left(self, channel: _Channel) -> None:
        """Note that a connection is closed. waitress may call this twice."""
        with self._lock:
            if channel.party is not None:
                self._open[channel.party] -= 1
                channel.party = None

    def add_task(self, task: _Channel) -> None:
        if not _is_quick(task):  # a quick request is answered by the channel that reads it
            self.task_dispatcher.set_thread_count(THREADS)
            super().add_task(task)

    def readable(self) -> bool:
        """Return whether to accept connections. Waitress asks at every event, and at least every second."""
        if (now := time.monotonic()) >= self._look_at:
            self._look_at = now + 1
            for channel in list(self.active_channels.values()):
                if channel.came < now - _LONGEST_SECONDS:
                    channel.will_close = True
        readable: bool = super().readable()
        return readable

    def maintenance(self, now: float) -> None:
        """Do nothing. Waitress's own version closes idle connections by the wall clock, which may be adjusted."""
