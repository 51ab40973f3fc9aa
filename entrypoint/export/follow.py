"""Event files of a job that runs, from records that grow."""

import time
from collections.abc import Callable
from pathlib import Path

from entrypoint.export.points import KINDS, Points
from entrypoint.export.tensorboard import EventFiles
from entrypoint.monitor.others import Tail

AGAIN = 1.0  # seconds between two looks
ENDING = ".jsonl.gz"


def follow(folders: Callable[[], list[Path]], files: EventFiles, is_over: Callable[[], bool]) -> int:
    """Write what comes into the records of these folders until the job is over; how many points there were."""
    tails: dict[Path, tuple[Tail, Points]] = {}
    count = 0
    while True:
        over = is_over()  # asked first: what was written before that is read below
        for path in sorted(path for folder in folders() for path in folder.glob(f"*{ENDING}")):
            if path not in tails:
                tails[path] = Tail(path), Points(path.name.removesuffix(ENDING))
            tail, points = tails[path]
            count += files.add(points.of(tail.lines(KINDS)))
        if over or (tails and all(points.ended for _, points in tails.values())):
            return count
        time.sleep(AGAIN)
