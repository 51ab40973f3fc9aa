"""The coordinator reads what the other hosts' records have got since it looked last."""

import json
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from entrypoint.record.members import Members
from entrypoint.record.read import MOST_BYTES, MOST_LINE, WRONG, is_line


class Tail:
    """The end of one record, which grows. Somebody else has written it: a line that cannot be read is left out."""

    def __init__(self, path: Path) -> None:
        self._path, self._at, self._rest = path, 0, b""
        self._members, self._size = Members(), 0  # bytes, expanded

    def lines(self, kinds: tuple[str, ...]) -> Iterator[list[Any]]:
        """Yield lines of these kinds that have come since the last call, as far as they are whole."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._at)
                data = file.read()
        except OSError:  # it has brought nothing yet
            return
        self._at += len(data)
        heads = tuple(f'["{kind}",'.encode() for kind in kinds)
        for text in self._members.expand(data):
            self._size += len(text)
            if self._size > MOST_BYTES:  # no honest record is so long
                return
            *whole, rest = (self._rest + text).split(b"\n") if text else (b"",)
            self._rest = rest if len(rest) <= MOST_LINE else b""
            for line in whole:
                if line.startswith(heads) and (found := _array(line)):
                    yield found


def _array(line: bytes) -> list[Any] | None:
    try:
        found = json.loads(line)
        return found if is_line(found) else None
    except WRONG:
        return None


def wait_for(hosts: Collection[str], folder: Path, within: float) -> None:
    """Wait until each of these hosts has brought all of its record into the folder, or so many seconds."""
    until = time.monotonic() + within
    while hosts and time.monotonic() < until:
        hosts = [host for host in hosts if not (folder / f"{host}.whole").exists()]
        time.sleep(0.005)
    for path in folder.glob("*.whole"):
        path.unlink()
