"""Read what was added to other hosts' records since the last read, on the coordinator."""

import time
from collections.abc import Collection, Iterator
from pathlib import Path

from entrypoint.record.lines import Line
from entrypoint.record.members import Members
from entrypoint.record.read import MOST_BYTES, MOST_LINE, parsed


class Tail:
    """Read the end of one growing record. Another host wrote it, so lines that cannot be read are left out."""

    def __init__(self, path: Path) -> None:
        self._path, self._at, self._rest = path, 0, b""
        self._members, self._size = Members(), 0  # bytes, expanded

    def lines(self, kinds: Collection[type[Line]]) -> Iterator[Line]:
        """Yield the whole lines of these kinds that were added since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._at)
                data = file.read()
        except OSError:  # the host has sent nothing yet
            return
        self._at += len(data)
        heads = tuple(f'["{kind.KIND}",'.encode() for kind in kinds)
        for text in self._members.expand(data):
            self._size += len(text)
            if self._size > MOST_BYTES:  # no honest record is longer
                return
            *whole, rest = (self._rest + text).split(b"\n") if text else (b"",)
            self._rest = rest if len(rest) <= MOST_LINE else b""
            yield from filter(None, parsed([line for line in whole if line.startswith(heads)]))


def wait_for(hosts: Collection[str], folder: Path, within: float) -> None:
    """Wait until the whole record of each of these hosts is in the folder, for `within` seconds at most."""
    until = time.monotonic() + within
    while hosts and time.monotonic() < until:
        hosts = [host for host in hosts if not (folder / f"{host}.whole").exists()]
        time.sleep(0.005)
    for path in folder.glob("*.whole"):
        path.unlink()
