"""Which files of a channel's folder are data, and not what notebooks, Spark, macOS and Windows leave beside them.

The expressions are for Python's `re` and for RE2, which graphs have.
"""

import logging
from collections.abc import Sequence
from pathlib import Path

LOGGER = logging.getLogger(__name__)
OF_WINDOWS = r"(?is).*/(desktop\.ini|thumbs\.db)"  # paths below the folder, each with a / in front
_SHOWN = 3  # files that are named

_told: set[Path] = set()


def data(pattern: str) -> str:
    """Return an expression for paths below the folder, each with a / in front, without names that begin with . or _.

    `pattern` may ask for such names: `_part-*`, `.cache/*.csv`.
    """
    plain = "/[^./_][^/]*"
    parts = ["**", *filter(None, pattern.split("/"))]
    return "(?s)" + "".join(f"({plain})*" if part == "**" else "/[^/]*" if part[0] in "._" else plain for part in parts)


def tell(channel: str, folder: Path, left_out: Sequence[str]) -> None:
    """Say once for each folder what is left out."""
    if left_out and folder not in _told:
        _told.add(folder)
        LOGGER.warning("channel '%s': %s", channel, listed(left_out))


def listed(left_out: Sequence[str]) -> str:
    """Return what is left out, as words."""
    more = f" and {len(left_out) - _SHOWN} more" if len(left_out) > _SHOWN else ""
    return (
        f"left out as no data: {', '.join(left_out[:_SHOWN])}{more} (names that begin with . or _, and those of "
        "Windows). A pattern that begins so finds them"
    )
