"""What Linux passes on to a program that it starts (execve(2)): arguments and environment. Sizes are bytes."""

import os
from collections.abc import Iterable

STRING = 32 * os.sysconf("SC_PAGE_SIZE") - 1  # of one argument or environment entry (MAX_ARG_STRLEN, with its NUL)
_ALL = 6 << 20  # of all together, whatever the stack's limit is
_POINTER = 8


def limit_of_all() -> int:
    """Return the limit of arguments and environment together: a quarter of the stack's."""
    return min(os.sysconf("SC_ARG_MAX"), _ALL)


def size(text: str) -> int:
    return len(os.fsencode(text))


def size_of_all(texts: Iterable[str]) -> int:
    """Count as the kernel does: with a NUL and a pointer for each."""
    return sum(size(text) + 1 + _POINTER for text in texts)
