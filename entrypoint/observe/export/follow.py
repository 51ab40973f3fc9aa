"""A job that runs, as others show it, from records that grow."""

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

from entrypoint.observe.export.points import KINDS, Points
from entrypoint.record.tail import Tail

AGAIN_SECONDS = 1.0  # seconds between two looks
ENDING = ".jsonl.gz"


class Sink(Protocol):
    """Takes what records say."""

    def add(self, source: Points, lines: Iterable[list[Any]]) -> int:
        """Take what lines of a host's record say; how many points that were."""


def follow(folders: Callable[[], list[Path]], sink: Sink, is_over: Callable[[], bool]) -> int:
    """Write what comes into the records of these folders until the job is over; how many points there were."""
    tails: dict[Path, tuple[Tail, Points]] = {}
    count = 0
    while True:
        over = is_over()  # asked first: what was written before that is read below
        for path in sorted(path for folder in folders() for path in folder.glob(f"*{ENDING}")):
            if path not in tails:
                tails[path] = Tail(path), Points(path.name.removesuffix(ENDING))
            tail, points = tails[path]
            count += sink.add(points, tail.lines(KINDS))
        if over or (tails and all(points.ended for _, points in tails.values())):
            return count
        time.sleep(AGAIN_SECONDS)
