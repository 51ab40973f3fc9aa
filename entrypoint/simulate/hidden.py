"""Separate data from files that notebooks, Spark, macOS and Windows leave beside them. Pure.

The rule is that of sagemaker_tf_data/hidden.py.
"""

from collections.abc import Sequence

_OF_WINDOWS = ("desktop.ini", "thumbs.db")
_SHOWN = 3  # files that a message names


def is_data(key: str) -> bool:
    """Return whether a file may be data: no part of its path begins with . or _, and it is no file of Windows."""
    parts = key.split("/")
    return not any(part[:1] in (".", "_") for part in parts if part) and parts[-1].lower() not in _OF_WINDOWS


def listed(left_out: Sequence[str]) -> str:
    """Return the first of these names, and how many more there are."""
    more = f" and {len(left_out) - _SHOWN} more" if len(left_out) > _SHOWN else ""
    return ", ".join(left_out[:_SHOWN]) + more
