"""Provide `eventually(fact, within=seconds)`, the only way in which a test waits."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(fact: Callable[[], T], within: float, what: str = "") -> T:
    """Return the first true value of `fact()`; raise AssertionError if there is none in time.

    `within` says when to give up, not how fast something has to be: be generous.
    """
    began = time.monotonic()
    while True:
        value = fact()
        if value:
            return value
        waited = time.monotonic() - began
        if waited > within:
            raise AssertionError(f"not within {within:g} s: {what or getattr(fact, '__name__', fact)}; last: {value!r}")
        time.sleep(min(0.02 + waited / 50, 0.1))  # to look takes time from those that are waited for
