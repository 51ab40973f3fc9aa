"""Check that the time of work grows linearly with its input, not with the input's square."""

import time
from collections.abc import Callable, Iterator


def grows_no_faster_than_its_input(act: Callable[[int], object], size: int) -> None:
    """Check that four times the input takes at most ten times the CPU time, not sixteen times; ignore small amounts.

    Takes the best of some tries: only this thread's CPU time is measured, but other threads disturb the CPU's caches.
    """
    small = min(_seconds(act, size) for _ in range(3))
    large = min(until_it_is_below(lambda: _seconds(act, 4 * size), 10 * small + 0.05, tries=3))
    assert large < 10 * small + 0.05, f"{size}: {small:.3f} s, {4 * size}: {large:.3f} s"


def until_it_is_below(measure: Callable[[], float], limit: float, tries: int) -> Iterator[float]:
    """Repeat a measurement until it is below the limit; yield each value."""
    for _ in range(tries):
        yield (seconds := measure())
        if seconds < limit:
            return


def _seconds(act: Callable[[int], object], count: int) -> float:
    before = time.thread_time()
    act(count)
    return time.thread_time() - before
