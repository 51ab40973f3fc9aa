"""The listening end of the control channel: waitress, with bounds on who comes in and how long they stay.

Bounded here, before a thread or the application has any work: connections a second and open ones of each host and of
all strangers together, the size of a request, and the time that it may take to arrive. One request per connection.
"""

from typing import Any

from waitress.channel import HTTPChannel
from waitress.server import TcpWSGIServer

from entrypoint.callers import MAX_MESSAGE, OPEN, Limits

_MAX_HEAD = 1 << 14  # bytes
_LONGEST = 10.0  # seconds from connecting to the answer, however busily a caller sends byte after byte
_AT_ONCE = 64  # connections that are taken in a row, so that those in the kernel's queue wait for no slow one


class _Channel(HTTPChannel):
    """One request, one answer: what a caller sends behind its first request is not read."""

    def service(self) -> None:
        self.requests[0].headers["CONNECTION"] = "close"
        super().service()


class Door(TcpWSGIServer):
    """A waitress server whose callers are limited."""

    channel_class = _Channel

    def __init__(self, application: Any, limits: Limits, address: str, port: int) -> None:
        self._limits = limits
        super().__init__(
            application, host=address, port=port, threads=8, backlog=1024, connection_limit=2000, cleanup_interval=1,
            max_request_body_size=MAX_MESSAGE, inbuf_overflow=2 * MAX_MESSAGE, max_request_header_size=_MAX_HEAD,
            asyncore_use_poll=True, ident="",
        )  # fmt: skip

    def handle_accept(self) -> None:
        for _ in range(_AT_ONCE):
            if not self._accept_one():
                return

    def _accept_one(self) -> bool:
        """Take one connection from the kernel's queue, and let it in or close it. False if there is none."""
        try:
            taken = self.accept()
            if taken is None:
                return False
            connection, address = taken
            party = self._limits.party(address[0])
            if self._open(party) < OPEN and self._limits.take(party):
                self.set_socket_options(connection)
                self.channel_class(self, connection, address, self.adj, map=self._map).party = party
            else:
                connection.close()
        except OSError:  # it has hung up already, or we have no file descriptor left
            return False
        return True

    def _open(self, party: str) -> int:
        return sum(channel.party == party for channel in list(self.active_channels.values()))

    def maintenance(self, now: float) -> None:
        """Called every second by waitress, whose own idea is to wait for silence."""
        for channel in list(self.active_channels.values()):
            if channel.creation_time < now - _LONGEST:
                channel.will_close = True
