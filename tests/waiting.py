"""`eventually(fact, within=seconds)`: the only way a test waits."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(fact: Callable[[], T], within: float, what: str = "") -> T:
    """The first true value of `fact()`; AssertionError if there is none in time.

    `within` says when to give up, not how fast something has to be: be generous.
    """
    deadline = time.monotonic() + within
    while True:
        value = fact()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within:g} s: {what or getattr(fact, '__name__', fact)}; last: {value!r}")
        time.sleep(0.02)
