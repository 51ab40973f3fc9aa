"""Listen with waitress: /ping never waits for predictions, and the end loses no request."""

import select
import socket
import time

from waitress import wasyncore
from waitress.channel import HTTPChannel
from waitress.server import TcpWSGIServer
from waitress.task import ThreadedTaskDispatcher

from entrypoint.serving.app import INNER, INVOCATIONS, LOOPBACK, Service, make_app

_LOOKERS = 2  # threads for /ping and the like
_LINGER_SECONDS = 25.0  # seconds to finish requests, of the 30 between SIGTERM and SIGKILL


class Server(TcpWSGIServer):
    """Answer until `stop` is called, from any thread or a signal handler. Then finish the requests that have begun."""

    def __init__(self, service: Service) -> None:
        self._service, threads = service, service.serving.threads
        self._asked_to_stop = self._is_ending = False
        self._quick = _lane(_LOOKERS)
        self._inner = _lane(threads)  # for what the user's code asks while it holds a thread of the first
        super().__init__(
            make_app(service), host="0.0.0.0", port=service.serving.port, threads=threads, backlog=2048,
            connection_limit=4096, max_request_body_size=service.serving.max_payload, recv_bytes=1 << 17, ident="",
            asyncore_use_poll=True,
            channel_request_lookahead=1,  # notices clients that hang up, whose requests are not computed any more
        )  # fmt: skip

    def add_task(self, channel: HTTPChannel) -> None:
        path = getattr(channel.requests[0], "path", "") or ""
        lane = self.task_dispatcher if path == INVOCATIONS else self._inner if path.startswith(INNER) else self._quick
        lane.add_task(channel)

    def stop(self) -> None:
        self._asked_to_stop = True
        self.pull_trigger()

    def set_socket_options(self, conn: socket.socket) -> None:
        if self._is_ending and conn.getpeername()[0] != LOOPBACK:
            raise ConnectionAbortedError  # waitress hangs up
        super().set_socket_options(conn)

    def run(self) -> bool:
        """Serve until stopped. Return whether all requests were answered."""
        while not self._asked_to_stop:
            self._turn(1.0)
        while select.select([self.socket], [], [], 0)[0]:  # accept those that have connected
            self.handle_accept()
        self._is_ending = True
        if self._service.code is None:  # else requests may be running that connect to us to ask the model
            self.accepting = False
            wasyncore.dispatcher.close(self)  # the listening socket only
        deadline = time.monotonic() + _LINGER_SECONDS
        self._turn(0.1)  # reads what has arrived
        while self._is_busy() and time.monotonic() < deadline:
            self._turn(0.1)
        return not self._is_busy()

    def _turn(self, timeout: float) -> None:
        wasyncore.loop(timeout=timeout, use_poll=True, map=self._map, count=1)

    def _is_busy(self) -> bool:
        return any(
            channel.requests or channel.request is not None or channel.total_outbufs_len
            for channel in list(self.active_channels.values())
        )


def _lane(threads: int) -> ThreadedTaskDispatcher:
    lane = ThreadedTaskDispatcher()
    lane.set_thread_count(threads)
    return lane
