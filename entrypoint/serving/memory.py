"""Bound the memory that reading the bodies of requests takes: who would need too much at once waits."""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from entrypoint.serving.served_model import Declined

# Bytes that Python and NumPy take at most for what begins with a character, in JSON or CSV: a number or text and its
# place in a list, a list or a line, an object, a key with its value, half of a string. test_serving.py measures them.
_COST = {b",": 50, b"[": 100, b"\n": 240, b"{": 240, b":": 110, b'"': 40}
_CSV_COST = {**_COST, b",": 110}  # of CSV each number is a text first


def cost(pieces: Iterable[bytes], most: int, is_csv: bool = False) -> int:
    """Return how many bytes it takes at most to read a body. Raise Declined if the body has more than `most`."""
    size = values = 0
    is_ascii = True
    for piece in pieces:
        size += len(piece)
        if size > most:
            raise Declined(f"the body is larger than {most >> 20} MB when it is expanded", 413)
        is_ascii = is_ascii and piece.isascii()
        values += sum(each * piece.count(mark) for mark, each in (_CSV_COST if is_csv else _COST).items())
    return size * (3 if is_ascii else 6) + values  # Python's text has up to four bytes for each character


class Memory:
    """Count bytes that are in use."""

    def __init__(self, most: int) -> None:
        self._most, self._used, self._changed = most, 0, threading.Condition()

    @contextmanager
    def taken(self, size: int) -> Iterator[Callable[[int], None]]:
        """Wait until so many bytes are free, and take them. Yield what reduces them. Raise Declined for too many."""
        if size > self._most:
            raise Declined(
                f"to read the body may take {size >> 20} MB of memory; wanted {self._most >> 20} MB at most: "
                "send fewer values at once (in batch transform by a smaller MaxPayloadInMB, or BatchStrategy "
                "SingleRecord), or use an instance with more memory",
                413,
            )
        with self._changed:
            self._changed.wait_for(lambda: self._used + size <= self._most)
            self._used += size

        def reduce(to: int) -> None:
            nonlocal size
            with self._changed:
                self._used -= max(0, size - to)
                size = min(size, to)
                self._changed.notify_all()

        try:
            yield reduce
        finally:
            reduce(0)
