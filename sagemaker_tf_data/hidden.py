"""Separate a channel's data from files that notebooks, Spark, macOS and Windows leave in its folder.

The expressions work in Python's `re`, and in RE2 for TensorFlow's graphs.
"""

import logging
from collections.abc import Sequence
from pathlib import Path

LOGGER = logging.getLogger(__name__)
OF_WINDOWS = r"(?is).*/(desktop\.ini|thumbs\.db)"  # for paths below the folder, with a leading /
_SHOWN = 3  # files that a message names

_told: set[Path] = set()


def data(pattern: str) -> str:
    """Return an expression that matches the paths of data below a channel's folder. Each path begins with /.

    No folder or file of such a path may begin with . or _, unless `pattern` asks for it: `_part-*`, `.cache/*.csv`.
    """
    plain = "/[^./_][^/]*"
    parts = ["**", *filter(None, pattern.split("/"))]
    return "(?s)" + "".join(f"({plain})*" if part == "**" else "/[^/]*" if part[0] in "._" else plain for part in parts)


def tell(channel: str, folder: Path, left_out: Sequence[str]) -> None:
    """Log the files that are left out, once for each folder."""
    if left_out and folder not in _told:
        _told.add(folder)
        LOGGER.warning("channel '%s': %s", channel, listed(left_out))


def listed(left_out: Sequence[str]) -> str:
    """Return a text that names the files that are left out."""
    more = f" and {len(left_out) - _SHOWN} more" if len(left_out) > _SHOWN else ""
    return (
        f"ignored, as they are not data: {', '.join(left_out[:_SHOWN])}{more} (names that begin with . or _, and those "
        "of Windows). A pattern that begins with . or _ includes them"
    )
