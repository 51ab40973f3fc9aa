"""Check a program that is no .py file: the interpreter in its first line, and line ends of Windows."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from code_files import ending
from unusable import Unusable, reason

MARKS = {b"\xef\xbb\xbf": "UTF-8", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}  # at the beginning of files of Windows
SHOWN_CHARS = 100  # characters of a line
MOST_BYTES = 1 << 20  # bytes of a file that may be a shell script


def check_first_line(program: str, code: Path) -> None:
    """Remove Windows' line ends from scripts. Raise Unusable if the program's first line names nothing that is here."""
    changed = [name for name in _scripts(program, code) if _without_windows(code / name)]
    if changed:
        more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
        print(f"removed line ends of Windows, which no shell accepts, from {', '.join(changed[:3])}{more}", flush=True)
    with (code / program).open("rb") as file:
        line = file.readline(4096).decode("utf-8", "replace").rstrip()
    if lacking := lacks(line, code):
        raise Unusable(f"the first line of {program}, {line[:SHOWN_CHARS]!r}, names {lacking}")


def lacks(line: str, code: Path) -> str:
    """Return the interpreter that a first line asks for and that is missing, with a remedy; "" if it is there."""
    if not line.startswith("#!"):
        return ""  # /bin/sh runs it
    words = line[2:].split()
    if not words:
        return "nothing; wanted an interpreter, such as #!/bin/bash"
    if Path(words[0]).name == "env" and os.access(words[0], os.X_OK):
        names = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
        found = bool(names) and shutil.which(names[0]) is not None
        asked = names[0] if names else "nothing"
    else:
        asked, found = words[0], (code / words[0]).is_file() and os.access(code / words[0], os.X_OK)
    return "" if found else f"{asked}, which is not in this image; wanted one that is, such as #!/bin/bash"


def _scripts(program: str, code: Path) -> Iterator[str]:
    """Yield the program and the shell scripts beside it, which it may source or call."""
    yield program
    for path in ending(code, ".sh"):
        name = str(path.relative_to(code))
        if name != program and path.is_file():
            yield name


def _without_windows(path: Path) -> bool:
    """Remove line ends and byte order marks of Windows from a shell script. Return whether there were any."""
    try:
        if path.stat().st_size > MOST_BYTES:
            return False
        text = path.read_bytes()
        mark = next((mark for mark in MARKS if text.startswith(mark)), b"")
        if MARKS.get(mark) == "UTF-16":
            raise Unusable(f"{path.name} is in UTF-16, which no shell reads; wanted UTF-8")
        whole = text.removeprefix(mark)
        if not (path.suffix == ".sh" or whole.startswith(b"#!")) or b"\0" in whole:
            return False
        lines = whole.split(b"\n")
        if not mark and not lines[0].endswith(b"\r"):
            return False
        path.write_bytes(b"\n".join(line.removesuffix(b"\r") for line in lines))
    except OSError as error:
        raise Unusable(f"{path} has line ends of Windows, and cannot be changed: {reason(error)}") from None
    return True
