"""Keep the last output of a process, and the beginning of its last traceback, to explain its end. Pure."""

GAP = "[... output that was not kept ...]"  # stands between the beginning of a traceback and the last output
LAST_BYTES = 1 << 14  # bytes of the last output that are kept
_BEGINNING_BYTES = 1 << 14  # bytes of the last traceback that are kept, from its beginning
_BEFORE_BYTES = 1 << 11  # bytes before it: the exception that it came of, an allocator's report of the memory
_HEADER = b"Traceback (most recent call last)"  # followed by a colon, or by the border of a box


class Tail:
    """Keep whole lines. A traceback with a long message may begin far before the end of the output."""

    def __init__(self) -> None:
        self._last = b""
        self._traceback = b""
        self._since = 0  # bytes since the traceback began

    def add(self, lines: bytes) -> None:
        found = lines.rfind(_HEADER)
        if found >= 0:
            begins = lines.rfind(b"\n", 0, found) + 1
            before = (self._last + lines[:begins])[-_BEFORE_BYTES:]
            self._traceback = before + lines[begins : begins + _BEGINNING_BYTES - len(before)]
            self._since = len(before) + len(lines) - begins
        elif self._traceback:
            self._traceback += lines[: _BEGINNING_BYTES - len(self._traceback)]
            self._since += len(lines)
        self._last = (self._last + lines[-LAST_BYTES:])[-LAST_BYTES:]

    def whole(self, unfinished: bytes = b"") -> bytes:
        """Return everything that is kept; a line marks a gap."""
        last = (self._last + unfinished)[-LAST_BYTES:]
        since = self._since + len(unfinished)
        if not self._traceback or since <= LAST_BYTES:
            return last
        missing = since - len(self._traceback) - len(last)
        if missing <= 0:
            return self._traceback + last[-missing:]
        return self._traceback + b"\n" + GAP.encode() + b"\n" + last
