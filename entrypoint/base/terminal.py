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
_FIRST_COLUMN = re.compile(r" *\S+(?: \S+)* {2,}(?=\S)")
_COMMAND = re.compile(r" {2,}(?:--|entrypoint |docker |pip |eval )")


def print_coloured(text: str, environment: Mapping[str, str], file: TextIO) -> None:
    print(shown(text, environment, width_of(file)), file=file, flush=True)


def width_of(file: TextIO) -> int:
    """Return the width of the terminal in columns, or 0 if `file` is no terminal."""
    return shutil.get_terminal_size().columns if file.isatty() else 0


def wrapped(text: str, width: int) -> str:
    """Return `text` in lines of a terminal's width, broken between words; 0: unchanged.

    A line of two columns goes on below the second. A command is left whole, to be copied.
    """
    if not width:
        return text
    import textwrap  # here, since most output goes to files

    def broken(line: str) -> str:
        first, before = len(line) - len(line.lstrip()), _FIRST_COLUMN.match(line)
        indent = before.end() if before and before.end() < width / 2 else first + 4 * (first < 8)
        layout = textwrap.TextWrapper(width, "", " " * indent, break_long_words=False, break_on_hyphens=False)
        return line if _COMMAND.match(line) else "\n".join(layout.wrap(line))

    return "\n".join(map(broken, text.split("\n")))


def shown(text: str, environment: Mapping[str, str], width: int) -> str:
    """Return `text` in lines of a terminal's width, and coloured unless NO_COLOR is set; FORCE_COLOR colours files."""
    text = wrapped(text, width)
    terminal = environment.get("FORCE_COLOR") or (width and environment.get("TERM") != "dumb")
    if not terminal or environment.get("NO_COLOR"):
        return text
    return _WORD.sub(lambda found: f"{found[1]}\x1b[{_COLOURS[found[2]]}m{found[2]}\x1b[0m", text)
