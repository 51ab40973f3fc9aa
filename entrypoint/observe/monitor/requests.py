"""Search lines for a metric that the user defines by a regular expression, within a limit of CPU time.

Python's engine tries all ways in which an expression may match a line. With some expressions that takes years. The
engine checks for signals while it searches, so a timer on this process's CPU time can end it.
"""

import re
import signal
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from entrypoint.record.read import text

T = TypeVar("T")
LONGEST_CHARS = 1000  # characters of a line that are looked at
PATIENCE_SECONDS = 0.25  # seconds of processor time for one line, after which the expression is left out
AT_ONCE, SHARE = 0.5, 0.05  # seconds of CPU time for lines: at most at once, and gained with each second


class Wanted:
    """Find the metric `name`: the first group of `expression` is its value. `log` is called if it is dropped."""

    def __init__(self, name: str, expression: str, log: Callable[[str], None]) -> None:
        self.name, self._say = name, log
        self._pattern: re.Pattern[str] | None = re.compile(expression)
        self._room, self._at = AT_ONCE, time.monotonic()

    def last_in(self, lines: Iterable[str]) -> float | None:
        """Return the last number that it finds in these lines, which it searches as long as CPU time is left."""
        now = time.monotonic()
        self._room, self._at = min(AT_ONCE, self._room + (now - self._at) * SHARE), now
        for line in reversed(list(lines)):
            if self._pattern is None or self._room <= 0:
                break
            began = time.thread_time()
            try:
                found = _within(PATIENCE_SECONDS, self._pattern.search, line[:LONGEST_CHARS])
            except _TooLong:
                self._say(
                    f"warning: ENTRYPOINT_METRICS: the expression of {self.name!r} takes over {PATIENCE_SECONDS:g} s a "
                    f"line of output, and is no longer used: {text(self._pattern.pattern)}"
                )
                self._pattern = None
                break
            self._room -= time.thread_time() - began
            value = _number(found[1]) if found else None
            if value is not None:
                return value
        return None


def _number(group: str | None) -> float | None:
    try:
        return None if group is None else float(group)  # None: the group has matched nothing
    except ValueError:
        return None


class _TooLong(Exception):
    """Signal that the CPU time for a line is used up."""


def _too_long(*_: object) -> None:
    raise _TooLong


def _within(seconds: float, work: Callable[[str], T], what: str) -> T:
    """Call `work`; raise _TooLong if it takes more CPU time. Only the main thread may call it: it gets signals."""
    signal.signal(signal.SIGVTALRM, _too_long)
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
        return work(what)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
