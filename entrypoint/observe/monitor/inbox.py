"""Receive the launcher's messages at the monitor's end of the socket, and join the output of each process."""

import socket
from collections.abc import Iterator

LONGEST = 1 << 18
LINE, OUTPUT, UNSEEN = b"[", b"L", b"U"  # kinds of feed.py: line of the record, output, count of output not sent


class Inbox:
    """Receive messages without waiting for any."""

    def __init__(self, feed: socket.socket) -> None:
        self._feed = feed
        self._room = memoryview(bytearray(LONGEST))
        self.ended = False  # whether the launcher has closed its end and all messages are taken

    def take(self) -> Iterator[tuple[bytes, str, bytes]]:
        """Yield (kind, process, content). A line of the record comes whole, with "" as process."""
        output: dict[bytes, list[bytes]] = {}
        while True:
            message = self._next()
            kind, (process, _, text) = message[:1], message[1:].partition(b"\0")
            if kind == OUTPUT:
                output.setdefault(process, []).append(text)
                continue
            for each, texts in output.items():
                yield OUTPUT, each.decode(errors="replace"), b"".join(texts)
            output.clear()
            if not message:
                return
            yield (kind, "", message) if kind == LINE else (kind, process.decode(errors="replace"), text)

    def _next(self) -> bytes:
        try:
            size = self._feed.recv_into(self._room, 0, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return b""
        except OSError:  # the launcher was killed before it had read our messages
            size = 0
        self.ended = not size
        return bytes(self._room[:size])
