"""The monitor's end of the launcher's socket: what has come on it, the lines of one process together."""

import socket
from collections.abc import Iterator

LONGEST = 1 << 18
LINE, OUTPUT, UNSEEN = b"[", b"L", b"U"  # as feed.py sends: of the record, printed, printed and only counted


class Inbox:
    """Takes messages when it is asked to; does not wait for any."""

    def __init__(self, feed: socket.socket) -> None:
        self._feed = feed
        self._room = memoryview(bytearray(LONGEST))
        self.ended = False  # the launcher has closed its end, and all is taken

    def take(self) -> Iterator[tuple[bytes, str, bytes]]:
        """Return (kind, process, what): a line of the record is whole, and belongs to no process."""
        output: dict[bytes, list[bytes]] = {}
        while message := self._next():
            kind, (process, _, text) = message[:1], message[1:].partition(b"\0")
            if kind == OUTPUT and process:  # what the launcher says has no process: each of it is a line of the record
                output.setdefault(process, []).append(text)
                continue
            yield from _joined(output)
            yield (kind, "", message) if kind == LINE else (kind, process.decode(errors="replace"), text)
        yield from _joined(output)

    def _next(self) -> bytes:
        try:
            size = self._feed.recv_into(self._room, 0, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return b""
        except OSError:  # it was killed, and has left unread what we told
            size = 0
        self.ended = not size
        return bytes(self._room[:size])


def _joined(output: dict[bytes, list[bytes]]) -> Iterator[tuple[bytes, str, bytes]]:
    for process, texts in output.items():
        yield OUTPUT, process.decode(errors="replace"), b"".join(texts)
    output.clear()
