"""Send one POST to another host, over a connection that may stay open. Bytes go out, bytes come back.

A host may have several addresses, of which not all work, and a network may lose packets. So after a moment without an
answer, the next address is tried, or the same one again.

A thousand hosts do this often: it costs a third of what http.client's objects cost.
"""

import contextlib
import encodings.idna  # getaddrinfo would import it later, when no file descriptor may be left  # noqa: F401
import errno
import os
import re
import socket
import time
from collections import deque
from collections.abc import Sequence

from entrypoint.base.values import Value, replace
from entrypoint.launcher.control.access import MESSAGE_BYTES

CONNECTING_SECONDS = 1.0  # seconds: the other's kernel answers, however busy its processes are
NEXT_SECONDS = 0.25  # seconds until another connection is tried; the kernel itself repeats a lost packet after 1 s
UNACKNOWLEDGED_MS = 1000  # milliseconds within which the other's kernel must confirm what we sent
_BLOCK = 1 << 16
_MAX_HEAD = 1 << 14
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
        answer = Answer(status=status, body=body, asked=asked, received=received, address=found)
        if stay and stays:
            stack.pop_all()
            answer = replace(answer, link=connection, rest=rest)
    return answer


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
    """Set up a connection: send without delay, and detect soon that the other side does not confirm."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_MS)
