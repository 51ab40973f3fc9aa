"""Listen with waitress: /ping never waits for predictions, refusals have a reason, the end loses no request.

Waitress documents none of this as an interface; the image pins its version. We use what the tasks of a channel use, the
methods of the server that are replaced here, and its `active_channels`.
"""

import re
import resource
import select
import socket
import time
from collections.abc import Iterable
from heapq import nsmallest
from pathlib import Path
from typing import Any

from waitress import wasyncore
from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser
from waitress.server import TcpWSGIServer
from waitress.task import ThreadedTaskDispatcher

from entrypoint.base.errors import ConfigError
from entrypoint.serving.front import error
from entrypoint.serving.serving_config import Serving

_LOOKERS = 2  # threads for /ping and the like
_LINGER_SECONDS = 25.0  # seconds to finish requests, of the 30 between SIGTERM and SIGKILL
_PAUSE_SECONDS = 2.0  # seconds after SIGTERM for which a request that has come in part may pause
_DRAIN_SECONDS = 5.0  # seconds for which we read on after a refusal, so that the client gets to read it
_GRACE_SECONDS = 0.03  # seconds for which a connection may be silent where there are too many
_LONGEST_HEAD = 1 << 15  # bytes
_LONGEST_CHUNK_LINE = 1 << 10  # bytes
_SMALL_BODY = 1 << 16  # bytes; larger ones share `Serving.bodies`
_UNREAD_SECONDS = 600.0  # seconds for which a client may read nothing of its answer
BACKLOG = 2048  # connections that wait to be accepted
MOST_CONNECTIONS = 4096
_FEWEST_CONNECTIONS = 4
_SPARE_FILES = 16  # descriptors for other things than connections
_PADDING = re.compile(rb"^([^:\r\n]+:)[ \t]+", re.MULTILINE)


class _Refusal:
    """Hold the reason of a refusal, in place of one of waitress's errors."""

    def __init__(self, status: int, why: str) -> None:
        self.status, self.why = status, why

    def to_response(self, _: object = None) -> Any:
        return error(self.status, self.why)


class _RequestParser(HTTPRequestParser):
    """Refuse requests that cannot be parsed, and give the reason."""

    path = command = ""  # which waitress reads even if there are none

    def received(self, data: bytes) -> int:
        try:
            count: int = super().received(data)
        except Exception as problem:  # an address such as "http://[", a number of 5,000 digits
            self.error, count = _Refusal(400, f"the request cannot be parsed: {problem}"[:200]), len(data)
        if len(getattr(self.body_rcv, "control_line", b"")) > _LONGEST_CHUNK_LINE:
            self.error = _Refusal(400, "a chunk of the body does not begin with its size")
        elif len(getattr(self.body_rcv, "trailer", b"")) > _LONGEST_HEAD:
            self.error = _Refusal(431, f"what follows the body is larger than {_LONGEST_HEAD} bytes")
        elif self.error and not isinstance(self.error, _Refusal):
            code = 400 if self.error.code == 501 else self.error.code  # for a Transfer-Encoding that it does not know
            most = f"the body is larger than {self.adj.max_request_body_size >> 20} MB, SAGEMAKER_MAX_PAYLOAD_IN_MB"
            self.error = _Refusal(code, most if code == 413 else self.error.body)
        if self.error:
            self.completed = True
        return count

    def parse_header(self, head: bytes) -> None:
        super().parse_header(_PADDING.sub(rb"\1", head))  # its expressions take the square of the padding's length

    @property
    def claims(self) -> int:
        """Return how many bytes of memory the body may take, if it is large."""
        if self.chunked:
            return self.adj.max_request_body_size if self.body_bytes_received > _SMALL_BODY else 0
        return self.content_length if self.content_length > _SMALL_BODY else 0


class _Connection(HTTPChannel):
    """Read a body only while there is memory for it, and let clients read why they are refused."""

    parser_class = _RequestParser
    request: _RequestParser | None
    heard = 0.0  # when bytes last came or went, or a request was answered, on the monotonic clock
    claimed = 0  # bytes, of the server's `claimed`
    is_refused = False
    drained_by: float | None = None  # when to close at last, on the monotonic clock

    def readable(self) -> bool:
        if not super().readable():
            return False
        more = self.request.claims - self.claimed if self.request is not None else 0
        return more <= 0 or self.server.claim(self, more)

    def add_channel(self, map: Any = None) -> None:
        super().add_channel(map)
        self.heard = time.monotonic()

    def handle_read(self) -> None:
        self.heard = time.monotonic()
        if self.drained_by is None:
            super().handle_read()
        else:
            self.recv(self.adj.recv_bytes)  # which closes at the end

    def send(self, data: bytes, do_close: bool = True) -> int:
        count: int = super().send(data, do_close)
        if count:
            self.heard = time.monotonic()
        return count

    def service(self) -> None:
        self.is_refused = self.is_refused or bool(self.requests[0].error)
        super().service()
        self.heard = time.monotonic()
        if not self.requests and self.request is None:
            self.server.release(self)

    def is_half(self) -> bool:
        """Return whether a request has come in part, and no other request is being answered."""
        return self.request is not None and self.is_idle() and self.drained_by is None

    def is_idle(self) -> bool:
        return not (self.requests or self.total_outbufs_len or self.close_when_flushed or self.will_close)

    def dismiss(self, status: int, why: str, now: bool = False) -> None:
        """Close a connection that waits for no answer. If a request has begun, send the reason first."""
        if self.request is not None and self.is_half():
            line, ((name, value),), body = error(status, why)
            head = f"HTTP/1.1 {line}\r\n{name}: {value}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            self.send(head.encode() + body)
            self.request.close()
            self.request, self.is_refused = None, not now
        self.handle_close()

    def handle_close(self) -> None:
        if self.is_refused and self.drained_by is None and self.connected:
            self.drained_by, self.will_close = time.monotonic() + _DRAIN_SECONDS, False
            try:
                self.socket.shutdown(socket.SHUT_WR)
                return
            except OSError:
                pass
        super().handle_close()

    def del_channel(self, map: Any = None) -> None:
        super().del_channel(map)
        self.server.release(self)


class Server(TcpWSGIServer):
    """Answer until `stop` is called, from any thread or a signal handler. Then finish the requests that have begun."""

    channel_class = _Connection

    def __init__(self, application: Any, serving: Serving) -> None:
        self._asked_to_stop, self._look_at = False, 0.0
        self._claims: dict[_Connection, int] = {}
        self._bodies = serving.bodies
        self._quick = ThreadedTaskDispatcher()
        self._quick.set_thread_count(_LOOKERS)
        more = 1 << 40  # bytes: in memory, since the disk for temporary files may be small
        super().__init__(
            application, host="0.0.0.0", port=serving.port, threads=serving.threads, backlog=BACKLOG,
            connection_limit=_most_connections(), max_request_body_size=serving.max_payload + 1, ident="",
            max_request_header_size=_LONGEST_HEAD, inbuf_overflow=more, outbuf_overflow=more, recv_bytes=1 << 16,
            asyncore_use_poll=True,
            channel_request_lookahead=1,  # notices clients that hang up, whose requests are not computed any more
        )  # fmt: skip

    def add_task(self, channel: HTTPChannel) -> None:
        request = channel.requests[0]
        is_quick = request.error or (
            request.command in ("GET", "HEAD") and request.path in ("/ping", "/execution-parameters")
        )
        (self._quick if is_quick else self.task_dispatcher).add_task(channel)

    # --- memory for bodies ---

    def claim(self, channel: _Connection, more: int) -> bool:
        """Let a channel have memory for its body, if there is enough. Called by the thread that reads."""
        if sum(list(self._claims.values())) + more > self._bodies:
            return False
        channel.claimed += more
        self._claims[channel] = channel.claimed
        return True

    def release(self, channel: _Connection) -> None:
        channel.claimed = 0
        if self._claims.pop(channel, None):
            self.pull_trigger()  # others may be read on

    # --- connections ---

    def _make_room(self) -> None:
        """If others want to connect and there are too many connections, close those that are silent for longest."""
        room = self.adj.connection_limit - len(self._map)
        if not self.accepting or room >= self._at_once or not _has_data([self.socket]):
            return
        before = time.monotonic() - _GRACE_SECONDS
        silent = [each for each in self.active_channels.values() if each.is_idle() and each.heard < before]
        has_data = _has_data(channel.socket for channel in silent)
        silent = [channel for channel in silent if channel.socket.fileno() not in has_data]
        for channel in nsmallest(self._at_once - room, silent, key=lambda channel: channel.heard):
            channel.dismiss(503, "there are too many connections", now=True)

    @property
    def _at_once(self) -> int:
        return max(1, min(64, self.adj.connection_limit // 2))

    def handle_accept(self) -> None:
        for _ in range(self._at_once):
            before = len(self._map)
            super().handle_accept()
            if len(self._map) in (before, self.adj.connection_limit):
                return

    def maintenance(self, _: float) -> None:
        """Do nothing: if waitress closes connections while it collects sockets, it may confuse them with new ones."""

    def _close_silent(self) -> None:
        """Close connections that are silent for long."""
        now = time.monotonic()
        for channel in list(self.active_channels.values()):
            if channel.drained_by is not None:
                if now > channel.drained_by:
                    channel.handle_close()
            elif channel.total_outbufs_len:
                if not channel.requests and channel.heard < now - _UNREAD_SECONDS:
                    channel.handle_close()
            elif channel.is_idle() and channel.heard < now - self.adj.channel_timeout:
                why = f"nothing more of the request came for {self.adj.channel_timeout} s"
                if channel.request is not None and channel.request.claims > channel.claimed:
                    channel.dismiss(503, "other requests take all of the memory for bodies; try again later")
                else:
                    channel.dismiss(408, why)

    # --- the end ---

    def stop(self) -> None:
        self._asked_to_stop = True
        self.pull_trigger()

    def run(self) -> bool:
        """Serve until stopped. Return whether all requests were answered."""
        while not self._asked_to_stop:
            self._turn(0.02 if len(self._map) >= self.adj.connection_limit else 1.0)
        while _has_data([self.socket]):  # accept those that have connected
            super().handle_accept()
        self.accepting = False
        wasyncore.dispatcher.close(self)  # the listening socket only
        deadline = time.monotonic() + _LINGER_SECONDS
        self._turn(0.1)  # reads what has arrived
        while self._is_busy() and time.monotonic() < deadline:
            self._turn(0.1)
            for channel in list(self.active_channels.values()):
                if channel.is_half() and time.monotonic() - channel.heard > _PAUSE_SECONDS:
                    channel.dismiss(503, "the server ends, and nothing more of the request came")
        return not self._is_busy()

    def _turn(self, timeout: float) -> None:
        self._make_room()
        if time.monotonic() > self._look_at:
            self._look_at = time.monotonic() + 1
            self._close_silent()
        wasyncore.loop(timeout=timeout, use_poll=True, map=self._map, count=1)

    def _is_busy(self) -> bool:
        return any(
            channel.requests or channel.request is not None or channel.total_outbufs_len
            for channel in list(self.active_channels.values())
        )


def _has_data(files: Iterable[Any]) -> set[int]:
    """Return the descriptors of those sockets from which something can be read."""
    poll = select.poll()
    for each in files:
        poll.register(each, select.POLLIN)
    return {descriptor for descriptor, _ in poll.poll(0)}


def _most_connections() -> int:
    """Return how many connections the process can have."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    most = min(MOST_CONNECTIONS, files - len(list(Path("/proc/self/fd").iterdir())) - _SPARE_FILES)
    if most < _FEWEST_CONNECTIONS:
        wanted = files + _FEWEST_CONNECTIONS - most
        raise ConfigError(f"the process may have {files} open files (ulimit -n); wanted {wanted} at least")
    return most
