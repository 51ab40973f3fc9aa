"""Call other hosts: POST over a connection that may stay open, and show our token.

A host may have several addresses, of which not all work, and a network may lose packets. So after a moment without an
answer, the next address is tried, or the same one again. A thousand hosts do this often: this module costs a third of
what http.client's objects cost.
"""

import contextlib
import errno
import json
import os
import re
import socket
import time
from collections import deque
from collections.abc import Sequence

from entrypoint.base.values import Value
from entrypoint.launcher.control.access import MESSAGE_BYTES
from entrypoint.launcher.control.host_names import HostNames
from entrypoint.launcher.control.wire import Refused
from entrypoint.launcher.job.cluster import Cluster, Host
from entrypoint.launcher.job.settings import Settings

TOKEN_HEADER = "X-Entrypoint-Token"
CONNECTING_SECONDS = 1.0  # seconds: the other's kernel answers, however busy its processes are
NEXT_SECONDS = 0.25  # seconds until another connection is tried; the kernel itself repeats a lost packet after 1 s
AGAIN_SECONDS = 0.02  # seconds between two attempts to reach a host that hangs up
UNACKNOWLEDGED_MS = 1000  # milliseconds within which the other's kernel must confirm what we sent
_BLOCK = 1 << 16
_MAX_HEAD = 1 << 14
# A message of a host, as `post` begins it: its path, Connection, Content-Length, the token.
_MESSAGE = re.compile(
    rb"POST (/\w+) HTTP/1\.1\r\nHost: control\r\nConnection: (keep-alive|close)\r\n"
    rb"Content-Type: application/json\r\nContent-Length: (\d+)\r\n(?:X-Entrypoint-Token: ([^\r\n]*)\r\n)?\r\n"
)
_STATUS = re.compile(rb"HTTP/1\.\d (\d{3})\b")
_LENGTH = re.compile(rb"\r\nContent-Length:[ \t]*(\d+)[ \t]*(?:\r|$)", re.IGNORECASE)
_STAYS = re.compile(rb"\r\nConnection:[ \t]*keep-alive[ \t]*(?:\r|$)", re.IGNORECASE)


class Unreachable(OSError):
    """Report that no connection could be made."""


class Answer(Value):
    status: int
    body: bytes
    asked: float  # when the request was sent, on the monotonic clock
    received: float  # when the answer was complete
    address: str  # the other's address, as a number
    link: socket.socket | None = None  # the connection, if both sides keep it
    rest: bytes = b""  # bytes that came behind the answer


def post(
    addresses: Sequence[str],
    port: int,
    path: str,
    body: bytes,
    timeout: float,
    *,
    source: str = "",
    headers: str = "",
    stay: bool = False,
) -> Answer:
    """Send a request, and wait for the answer, at most `timeout` seconds.

    Raise Unreachable if no connection could be made, OSError if no HTTP answer came. `addresses` are numbers, the best
    first; `source` is the address to call from; `headers` are whole lines with their ends. With `stay`, the other side
    is asked to keep the connection; if it does, it is the answer's `link`, and the caller must close it.
    """
    deadline = time.monotonic() + timeout
    head = (
        f"POST {path} HTTP/1.1\r\nHost: control\r\n"
        f"Connection: {'keep-alive' if stay else 'close'}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
    )
    with contextlib.ExitStack() as stack:
        connection = stack.enter_context(connected(addresses, port, min(timeout, CONNECTING_SECONDS), source))
        asked, found = time.monotonic(), str(connection.getpeername()[0])
        connection.settimeout(timeout)
        prepare(connection)
        connection.sendall(head.encode("utf-8") + body)
        text = b""
        while (whole := _whole(text)) is None:
            block = connection.recv(_BLOCK)
            if not block:
                raise ConnectionError("the answer is not HTTP, or is cut off")
            text += block
            left = deadline - time.monotonic()
            if left <= 0 or len(text) > _MAX_HEAD + MESSAGE_BYTES:
                raise TimeoutError(f"no end of an answer within {timeout:g} s")
            connection.settimeout(left)
        received = time.monotonic()
        status, body, rest, stays = whole
        link = connection if stay and stays else None
        if link:
            stack.pop_all()
    return Answer(status=status, body=body, asked=asked, received=received, address=found, link=link, rest=rest)


def message_in(text: bytes) -> tuple[str, bool, str, bytes] | None:
    """Return (path, whether to keep the connection, token, body) if `text` is a whole message of `post`."""
    head = _MESSAGE.match(text)
    if head is None or int(head[3]) != len(text) - head.end():
        return None
    return head[1].decode(), head[2] == b"keep-alive", (head[4] or b"").decode("latin-1"), text[head.end() :]


def _whole(text: bytes) -> tuple[int, bytes, bytes, bool] | None:
    """Return (status, body, bytes behind it, whether the connection stays) of an answer; None if it is not complete."""
    head, end, rest = text.partition(b"\r\n\r\n")
    if not end:
        return None
    status, length = _STATUS.match(head), _LENGTH.search(head)
    if not (status and length):
        raise ConnectionError("the answer is not HTTP as the hosts of a job send it")
    size = int(length[1])
    if len(rest) < size:
        return None
    return int(status[1]), rest[:size], rest[size:], bool(_STAYS.search(head))


def connected(addresses: Sequence[str], port: int, timeout: float, source: str) -> socket.socket:
    """Return the first connection to any of these addresses. Each attempt waits twice as long as the last."""
    deadline, patience = time.monotonic() + timeout, NEXT_SECONDS
    error: OSError = TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
    waiting = deque(addresses)
    while waiting and (left := deadline - time.monotonic()) > 0:
        address = waiting.popleft()
        try:
            return socket.create_connection((address, port), min(patience, left), (source, 0) if source else None)
        except TimeoutError:
            waiting.append(address)
            patience *= 2
        except OSError as problem:
            error = problem
    raise Unreachable(*error.args) from error


def prepare(connection: socket.socket) -> None:
    """Set up a connection to send without delay, and to detect soon that the other side confirms nothing."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_MS)


class Calls:
    """Send POSTs from one host to the others, by the IPv4 and IPv6 addresses that their names resolve to."""

    def __init__(self, cluster: Cluster, settings: Settings, names: HostNames | None = None) -> None:
        self._settings, self._names = settings, names or HostNames(cluster)
        self._source = cluster.me.address if cluster.me.address.startswith("127.") else ""
        self._headers = f"{TOKEN_HEADER}: {settings.token}\r\n" if settings.token else ""

    def __call__(self, host: Host, path: str, message: bytes, timeout: float, stay: bool = False) -> Answer:
        """POST to a host. Raise Unreachable without a connection, OSError without an answer, or Refused."""
        try:
            addresses = self._names.addresses_of(host, within=CONNECTING_SECONDS)
        except OSError as error:
            raise Unreachable(*error.args) from error
        try:
            port, more = host.port(self._settings.control_port), {"source": self._source, "headers": self._headers}
            answer = post(addresses, port, path, message, timeout, stay=stay, **more)
        except Unreachable:
            self._names.note_unreached(host)
            raise
        self._names.note_reached(host, answer.address)
        if answer.status != 200:
            raise Refused(_reason(answer.body) or f"it answered {answer.status}", answer.status)
        return answer

    def takes_connection(self, host: Host, address: str, within: float) -> bool:
        """Return whether a host's kernel accepts a connection to its launcher, even if that is too busy to answer.

        A launcher that is being killed may close its connection before it stops listening: the kernel then resets the
        new connection and refuses the next. So the new one is watched for a moment.
        """
        port, deadline = host.port(self._settings.control_port), time.monotonic() + within
        while (left := deadline - time.monotonic()) > 0:
            try:
                with connected([address], port, left, self._source) as connection:
                    connection.settimeout(max(AGAIN_SECONDS, deadline - time.monotonic()))
                    connection.recv(1)
            except Unreachable:
                return False
            except TimeoutError:  # it is still open
                return True
            except OSError:
                pass
            time.sleep(AGAIN_SECONDS)
        return True


def _reason(answer: bytes) -> str:
    try:
        return str(json.loads(answer)["error"])
    except (ValueError, KeyError, TypeError):
        return ""
