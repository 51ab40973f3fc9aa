"""Convert tracebacks in boxes, in lines of JSON and of IPython into Python's own form. Pure."""

import json
import re
from collections.abc import Iterator, Sequence
from itertools import groupby

from entrypoint.base.values import Value
from entrypoint.launcher.outcome.tracebacks import UNCAUGHT

TRACEBACK = "Traceback (most recent call last)"

# Rich draws boxes in ASCII if the output's encoding has nothing better.
_TOP = re.compile(r"^(?P<indent> *)[╭+][─-]+ (?P<title>\S.*\S|\S) [─-]+[╮+]$")
_BOTTOM = re.compile(r"^ *[╰+][─-]{10,}[╯+]$")
_BORDER = ("│", "|")
_RULE = re.compile(r"^[─-]+$")
_PLACE = re.compile(r"^(?P<file>\S.*):(?P<line>\d+) in ?(?P<function>\S+)$")
_LOGGED = re.compile(r"\bERROR\b|\[error *\]|\bCRITICAL\b|\[critical *\]")  # what a logging handler prints before it
_POINTED = re.compile(r"^[❱>] *\d+[ │|]*(?P<code>.*)$")
_IPYTHON = re.compile(rf"^(?P<name>[A-Za-z_][\w.]*) +{re.escape(TRACEBACK)}$")
_CELL = re.compile(
    r"^(?:File )?(?P<file>\S.*?)(?::|, line )(?P<line>\d+)(?:, in (?P<function>[^(]+)\(.*|, in (?P<whole>\S+))?$"
)
_CELL_POINTED = re.compile(r"^-+> \d+ (?P<code>.*)$")


class Box(Value):
    """Hold a box with a title. `first` and `last` are indexes of the output's lines."""

    title: str
    inside: tuple[str, ...]
    first: int
    last: int
    indent: int

    @property
    def paragraph(self) -> str:
        """Return the first paragraph as one line, since a box breaks lines at its width."""
        inside: list[str] = []
        for line in self.inside:
            if _RULE.match(line.strip()) or (inside and not line.strip()):
                break
            inside.append(line.strip())
        return " ".join(filter(None, inside))


def boxes(lines: Sequence[str]) -> Iterator[Box]:
    """Yield the complete boxes in their order."""
    first, top = 0, None
    for number, line in enumerate(lines):
        if found := _TOP.match(line):
            first, top = number, found
        elif top and _BOTTOM.match(line) and line.startswith(top["indent"]) and line[len(top["indent"])] != " ":
            inside = tuple(map(_inside, lines[first + 1 : number]))
            yield Box(title=top["title"], inside=inside, first=first, last=number, indent=len(top["indent"]))
            top = None


def as_python_prints(lines: Sequence[str]) -> list[str]:
    """Return the lines, with tracebacks in boxes and in JSON replaced by Python's own form."""
    if not any(TRACEBACK in line for line in lines):
        return list(lines)
    lines = list(_of_ipython(lines))
    plain: list[str] = []
    at = 0
    for box in boxes(lines):
        if box.title != TRACEBACK:
            continue
        plain += [text for line in lines[at : box.first] for text in _of_json(line)]
        is_uncaught = not box.indent and not _LOGGED.search(next(filter(str.strip, reversed(plain)), ""))
        plain += [f"{UNCAUGHT if is_uncaught else ''}{TRACEBACK}:", *_frames(box)]
        width = len(lines[box.first])
        at = box.last + 1
        if at < len(lines) and lines[at].strip():
            raised, at = _joined(lines, at, width)
            plain.append(raised[box.indent :] if not raised[: box.indent].strip() else raised)
    return plain + [text for line in lines[at:] for text in _of_json(line)]


def _inside(line: str) -> str:
    """Return the text between the borders of a box."""
    line = line.strip()
    line = line[2:] if line.startswith(_BORDER) else line
    return (line[:-1] if line.endswith(_BORDER) else line).rstrip()


def _frames(box: Box) -> Iterator[str]:
    """Yield the frames in a traceback's box: a file and its line, then the code around it with one line marked."""
    for is_empty, group in groupby(box.inside, lambda line: not line.strip()):
        if is_empty:
            continue
        part = list(group)
        # A long path is broken into several lines.
        for count in (1, 2, 3):
            place = _PLACE.match("".join(part[:count]))
            if place and count <= len(part):
                yield f'  File "{place["file"]}", line {place["line"]}, in {place["function"]}'
                break
        for line in part:
            if pointed := _POINTED.match(line):
                yield f"    {pointed['code'].strip()}"


def _joined(lines: Sequence[str], at: int, width: int) -> tuple[str, int]:
    """Return an exception's line, which Rich breaks at its box's width, and the index of the next line."""
    text = lines[at]
    last, at = text, at + 1
    while at < len(lines) and (word := lines[at].partition(" ")[0]) and len(last) + 1 + len(word) > width:
        text, last, at = f"{text} {lines[at]}", lines[at], at + 1
    return text, at


def _of_ipython(lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines, with tracebacks of IPython (which runs notebooks) in Python's own form."""
    name = ""
    for line in lines:
        if TRACEBACK in line and (found := _IPYTHON.match(line)):
            name = found["name"]
            yield f"{UNCAUGHT}{TRACEBACK}:"
        elif not name:
            yield line
        elif line == name or line.startswith(f"{name}:"):
            name = ""
            yield line
        elif place := _CELL.match(line):
            function = place["function"] or place["whole"] or "<module>"
            yield f'  File "{place["file"]}", line {place["line"]}, in {function}'
        elif pointed := _CELL_POINTED.match(line):
            yield f"    {pointed['code'].strip()}"


def _of_json(line: str) -> Iterator[str]:
    """Yield the message and traceback of a log line in JSON; any other line as it is."""
    tracebacks: list[str] = []
    if line.startswith("{") and f"{TRACEBACK}:" in line:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            found = {}
        texts = [value for value in found.values() if isinstance(value, str)] if isinstance(found, dict) else []
        tracebacks = [text for text in texts if f"{TRACEBACK}:" in text]
    yield from (each for text in tracebacks for each in text.splitlines()) if tracebacks else [line]
