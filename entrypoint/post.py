"""One POST to another host, over a connection of its own. Bytes in, bytes out; opinions are in peers.py.

A thousand hosts make this often: it costs a third of what http.client's objects do.
"""

import socket
import time
from dataclasses import dataclass

from entrypoint.callers import MAX_MESSAGE

CONNECTING = 1.0  # seconds: the other's kernel answers, however busy its processes are
_BLOCK = 1 << 16
_MAX_HEAD = 1 << 14


class Unreachable(OSError):
    """There was no connection."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    status: int
    body: bytes
    asked: float  # when the question went out, on the monotonic clock
    heard: float  # when the answer was there
    address: str  # where the other was, as a number


def post(
    address: tuple[str, int], path: str, body: bytes, timeout: float, *, source: str = "", headers: str = ""
) -> Answer:
    """Ask, and wait for the answer, at most `timeout` seconds. OSError if there is none that is HTTP; Unreachable if it
    could not be asked.

    `source` is the address that we are to call from, `headers` are whole lines with their ends.
    """
    deadline = time.monotonic() + timeout
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {address[0]}\r\nConnection: close\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n{headers}\r\n"
    )
    with _connected(address, min(timeout, CONNECTING), source) as connection:
        asked, found = time.monotonic(), str(connection.getpeername()[0])
        connection.settimeout(timeout)
        connection.sendall(head.encode("utf-8") + body)
        text = b""
        while block := connection.recv(_BLOCK):
            text += block
            left = deadline - time.monotonic()
            if left <= 0 or len(text) > _MAX_HEAD + MAX_MESSAGE:
                raise TimeoutError(f"no end of an answer within {timeout:g} s")
            connection.settimeout(left)
    heard = time.monotonic()
    top, end, rest = text.partition(b"\r\n\r\n")
    words = top.split(None, 2)
    if not (end and len(words) > 1 and words[0].startswith(b"HTTP/") and words[1].isdigit()):
        raise ConnectionError("what answers there does not speak HTTP, or broke off")
    return Answer(status=int(words[1]), body=rest, asked=asked, heard=heard, address=found)


def _connected(address: tuple[str, int], timeout: float, source: str) -> socket.socket:
    try:
        return socket.create_connection(address, timeout, source_address=(source, 0) if source else None)
    except OSError as error:
        raise Unreachable(*error.args) from error
