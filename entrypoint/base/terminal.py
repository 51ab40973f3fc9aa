"""Print text for a terminal: errors and successes in colour, and lines that break between words."""

import re
import shutil
from collections.abc import Mapping
from typing import TextIO

_COLOURS = {
    "error": 31, "failed": 31, "no-go": 31, "warning": 33, "stopped": 33, "restarted": 33, "end unknown": 33,
    "note": 36, "fine": 32, "go": 32,
}  # fmt: skip
_WORD = re.compile(rf"^((?:[\w./ -]+(?::\d+)?: )?)({'|'.join(_COLOURS)})(?=[: ])", re.M)


def print_coloured(text: str, environment: Mapping[str, str], file: TextIO) -> None:
    print(shown(text, environment, width_of(file)), file=file, flush=True)


def width_of(file: TextIO) -> int:
    """Return the width of the terminal in columns, or 0 if `file` is no terminal."""
    return shutil.get_terminal_size().columns if file.isatty() else 0


def shown(text: str, environment: Mapping[str, str], width: int) -> str:
    """Return `text` in lines of a terminal's width, and coloured unless NO_COLOR is set; FORCE_COLOR colours files."""
    if width:
        import textwrap  # here, since most output goes to files

        def wrapped(line: str) -> str:
            indent = " " * (len(line) - len(line.lstrip()) + 4)
            layout = textwrap.TextWrapper(width, "", indent, break_long_words=False, break_on_hyphens=False)
            return "\n".join(layout.wrap(line))

        text = "\n".join(map(wrapped, text.split("\n")))
    terminal = environment.get("FORCE_COLOR") or (width and environment.get("TERM") != "dumb")
    if not terminal or environment.get("NO_COLOR"):
        return text
    return _WORD.sub(lambda found: f"{found[1]}\x1b[{_COLOURS[found[2]]}m{found[2]}\x1b[0m", text)
