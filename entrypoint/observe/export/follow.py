"""Follow the growing records of a running job, and pass their lines to another tool."""

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from entrypoint.observe.export.points import KINDS, Points
from entrypoint.record.lines import Line
from entrypoint.record.read import Tail

AGAIN_SECONDS = 1.0  # seconds between two looks
ENDING = ".jsonl.gz"


class Sink(Protocol):
    """Define what writes lines of records for another tool."""

    def add(self, source: Points, lines: Iterable[Line]) -> int:
        """Write lines of a host's record; return the number of points in them."""


def follow(folders: Callable[[], list[Path]], sink: Sink, is_over: Callable[[], bool]) -> int:
    """Write new lines of the records in these folders until the job is over; return the number of points."""
    tails: dict[Path, tuple[Tail, Points]] = {}
    count = 0
    while True:
        over = is_over()  # checked first: lines written before that are read below
        for path in sorted(path for folder in folders() for path in folder.glob(f"*{ENDING}")):
            if path not in tails:
                tails[path] = Tail(path), Points(path.name.removesuffix(ENDING))
            tail, points = tails[path]
            count += sink.add(points, tail.lines(KINDS))
        if over or (tails and all(points.outcome for _, points in tails.values())):
            return count
        time.sleep(AGAIN_SECONDS)
