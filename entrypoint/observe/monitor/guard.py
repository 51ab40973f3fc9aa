"""Contain a fault of one part of the monitor: it ends that part of one round, is logged once, and the rest goes on."""

import traceback
from collections.abc import Callable
from pathlib import Path

MOST = 10  # faults that are logged


class Guard:
    """Call functions, and log their exceptions with `log`, once for each place in our code."""

    def __init__(self, log: Callable[[str], None]) -> None:
        self._say = log
        self._said: set[str] = set()

    def __call__(self, work: Callable[[], object]) -> None:
        try:
            work()
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{Path(frame.filename).name}:{frame.lineno}"
            if place not in self._said and len(self._said) < MOST:
                self._said.add(place)
                words = " ".join(f"{type(error).__name__}: {error}".split())[:200]
                self._say(f"warning: error in the monitor of this host, at {place}: {words}; it continues without that")
