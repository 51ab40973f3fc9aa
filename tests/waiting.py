"""Provide `eventually(fact, within=seconds)`, by which all tests wait, and a lock for all test runs."""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def eventually(fact: Callable[[], T], within: float, what: str = "") -> T:
    """Repeat `fact()` until it returns a true value; return that, or raise AssertionError after the time limit.

    `within` is a generous time limit, not a requirement on speed.
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


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock on a file or folder during the block; other processes of this machine wait for it."""
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
