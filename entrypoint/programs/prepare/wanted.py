"""Read requirements files as pip does: each requirement with its file and line, and pip's options."""

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from code_files import read as text_of
from packaging.requirements import InvalidRequirement, Requirement
from unusable import Unusable

MOST_FILES = 50  # that include one another by -r
COMMENT = re.compile(r"(^|\s+)#.*$")
VARIABLE = re.compile(r"\$\{([A-Z0-9_]+)\}")
PER_REQUIREMENT = re.compile(r"\s(?=--(?:hash|config-settings?|global-option|build-option|install-option)\b)")
INCLUDES = ("-r", "--requirement", "-c", "--constraint", "--requirements", "--constraints")


class Wanted(NamedTuple):
    """Hold one requirement. `requirement` is None for a path, or a URL without a name."""

    file: Path
    line: int
    text: str
    requirement: Any = None  # a Requirement of `packaging`
    options: str = ""  # its own: --hash=..., say
    editable: bool = False
    constraint: bool = False  # out of a file of constraints

    @property
    def at(self) -> str:
        return f"line {self.line}" if self.file.name == "requirements.txt" else f"{self.file.name} line {self.line}"


class Files(NamedTuple):
    """Hold the requirements of a file, and of the files that it names."""

    wanted: list[Wanted]
    options: list[list[str]]  # pip's, in lines of their own: ["--index-url", "https://..."]
    missing: list[str]  # files that are named and cannot be read


def read(path: Path) -> Files:
    """Return the requirements of a file, and of the files that it names by -r and -c."""
    files = Files([], [], [])
    _read(path, files, constraint=False, seen=set())
    return files


def _read(path: Path, files: Files, *, constraint: bool, seen: set[Path]) -> None:
    real = path.resolve()
    if real in seen or len(seen) >= MOST_FILES:
        return
    seen.add(real)
    if real.is_dir():
        raise Unusable(f"{path} is no file; wanted one with requirements")
    try:
        text = text_of(path, "utf-8-sig")
    except OSError:
        files.missing.append(str(path))
        return
    for number, line in _lines(text):
        line = VARIABLE.sub(lambda found: os.environ.get(found[1]) or found[0], line)
        if not line.startswith("-"):
            files.wanted.append(as_wanted(path, number, line, constraint=constraint))
            continue
        try:
            words = shlex.split(line)
        except ValueError:  # pip will say what is wrong
            words = line.split()
        name, given, value = words[0].partition("=") if words[0].startswith("--") else (words[0][:2], "", words[0][2:])
        if given or (value and not words[0].startswith("--")):
            words = [name, value, *words[1:]]
        if name in INCLUDES and len(words) > 1:
            if "://" in words[1]:
                files.options.append(words)
            else:
                _read(path.parent / words[1], files, constraint=constraint or name.startswith(("-c", "--c")), seen=seen)
        elif name in ("-e", "--editable") and len(words) > 1:
            files.wanted.append(Wanted(path, number, words[1], editable=True))
        else:
            files.options.append(words)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield (number, text) of each line that is not empty, without comments, joined with its continuation lines."""
    begun, number = "", 0
    for at, line in enumerate(text.splitlines(), 1):
        if not begun:
            number = at
        is_comment = line.lstrip().startswith("#")
        if line.endswith("\\") and not is_comment:
            begun += line[:-1]
            continue
        whole = COMMENT.sub("", begun if is_comment else begun + line).strip()
        begun = ""
        if whole:
            yield number, whole
    if begun.strip():
        yield number, COMMENT.sub("", begun).strip()


def as_wanted(path: Path, number: int, line: str, *, constraint: bool) -> Wanted:
    text, *options = PER_REQUIREMENT.split(line, maxsplit=1)
    text = text.strip()
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        requirement = None
    return Wanted(path, number, text, requirement, options[-1] if options else "", constraint=constraint)
