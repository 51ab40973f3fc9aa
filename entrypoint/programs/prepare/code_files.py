"""Find and read the files of the user's code: regular files of a few MB, since a pipe or a device has no end.

Make digests of them, to compare between hosts.
"""

import contextlib
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from unusable import Unusable

MOST_BYTES = 64 << 20  # of a file that Python or pip must read as a whole
READ_BYTES = 4 << 20  # of a file that is searched for what it uses
MOST_DEPTH = 100  # folders in one another; Python's own functions for trees call themselves for each
DEPTH = f"wanted at most {MOST_DEPTH}"
LEFT_BEHIND = re.compile(r"(^|/)(__pycache__|[^/]*\.egg-info)(/|$)")
LARGE_BYTES = 16 << 20
NULL = os.makedev(1, 3)  # /dev/null
KINDS = {stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}


def below(folder: Path, follows: bool = False) -> Iterator[os.DirEntry[str]]:
    """Yield all entries of a folder and of those below it; `follows`: also through links, as a copy does.

    Leave out folders that cannot be read (lost+found) or are gone. Raise Unusable if links form a circle, or folders
    are nested too deeply.
    """
    left: list[tuple[str, tuple[tuple[int, int], ...]]] = [(str(folder), (_identity(folder.stat()),))]
    while left:
        path, above = left.pop()
        try:
            entries = os.scandir(path)
        except (PermissionError, FileNotFoundError):
            continue
        with entries:
            for entry in entries:
                yield entry
                if not (here := _folder(entry, follows)):
                    continue
                if here in above:
                    raise Unusable(f"{entry.path} is a link to a folder that it is in; wanted no such circles")
                if len(above) >= MOST_DEPTH:
                    raise Unusable(f"{folder} has {len(above)} folders in one another and more; {DEPTH}")
                left.append((entry.path, (*above, here)))


def ending(folder: Path, suffix: str) -> list[Path]:
    """Return the first 2,000 files below a folder that end with `suffix`. Raise Unusable if one is a pipe, say."""
    found = [Path(entry.path) for entry in below(folder) if entry.name.endswith(suffix) and not _folder(entry, True)]
    found = sorted(found)[:2000]
    for path in found:
        refuse_special(path)
    return found


def refuse_special(path: Path) -> None:
    """Raise Unusable if a path is neither a file nor a folder. It may be missing, or /dev/null, an empty file."""
    try:
        found = path.stat()
    except OSError:  # a link to nothing
        return
    kind = stat.S_IFMT(found.st_mode)
    if kind in KINDS and not (kind == stat.S_IFCHR and found.st_rdev == NULL):
        raise Unusable(f"{path} is {KINDS[kind]}; wanted files and folders alone in the code")


def read(path: Path, encoding: str = "utf-8") -> str:
    """Return the text of a file that must be read as a whole. Raise Unusable if it is too large, or is no file."""
    refuse_special(path)
    if (size := path.stat().st_size) > MOST_BYTES:
        raise Unusable(f"{path} has {size >> 20} MB; wanted at most {MOST_BYTES >> 20}: data belong into a channel")
    return path.read_text(encoding, errors="replace")


def texts(code: Path) -> Iterator[tuple[str, str]]:
    """Yield each Python file, at most 2,000 of them: its name below `code`, and its text."""
    for path in ending(code, ".py"):
        with contextlib.suppress(OSError):
            if path.stat().st_size <= READ_BYTES:
                yield str(path.relative_to(code)), path.read_text("utf-8", errors="replace")


def digest_of_code(code: Path) -> str:
    """Return 12 characters for the user's code as it was fetched: names and contents, but no files of a run."""
    import hashlib

    whole = hashlib.sha256()
    for path in sorted(Path(entry.path) for entry in below(code)):
        inside = path.relative_to(code)
        if not path.is_file() or inside.parts[0] in (".git", "build") or LEFT_BEHIND.search(str(inside)):
            continue
        with contextlib.suppress(OSError):
            size = path.stat().st_size
            whole.update(f"{inside}\0{size}\0".encode("utf-8", "surrogateescape"))
            with path.open("rb") as file:  # of large files, most likely data, the size and the beginning
                whole.update(file.read(LARGE_BYTES))
    return whole.hexdigest()[:12]


def digest(text: str | bytes) -> str:
    import hashlib

    return hashlib.sha256(text if isinstance(text, bytes) else text.encode()).hexdigest()[:12]


def _folder(entry: os.DirEntry[str], follows: bool) -> tuple[int, int] | None:
    """Return the identity of a folder; None if the entry is no folder."""
    try:
        return _identity(entry.stat(follow_symlinks=follows)) if entry.is_dir(follow_symlinks=follows) else None
    except OSError:  # a link to itself, or gone, or in a folder that may only be listed
        return None


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino
