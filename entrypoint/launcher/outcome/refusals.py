"""Find why a program refused its command line: the line with the reason, among usage and hints. Pure."""

import re
from collections.abc import Sequence

from entrypoint.launcher.outcome.forms import TRACEBACK, boxes
from entrypoint.launcher.outcome.symptoms import without_goodbyes

NEAR_LINES = 100  # last lines in which a refusal is looked for
CODES = {2, 64}  # exit codes that mean a refusal, whatever is printed after it; some libraries end with 1
_HYDRA = "Set the environment variable HYDRA_FULL_ERROR=1 "

_ABSL = re.compile(r"^FATAL Flags parsing error:")
_USAGE = re.compile(r"^ *usage:", re.IGNORECASE)
_ERROR = re.compile(r"^([^\s:][^:]*: )?(error|ERROR|Error): ?\S")
_UNMATCHED = re.compile(r"^(ERROR|Error|error|Warning): |: error: ")
_TITLE = re.compile(r"\b(error|options?|arguments?|invalid|missing|required|unrecognized|unknown)\b", re.IGNORECASE)
_MORE = re.compile(r"[ \t]+\S")
_STEPS = (":", ",")  # ends of a line that continues in the next one


def refusal(lines: Sequence[str], code: int) -> str:
    """Return why a program did not take its arguments; "" if it did not end because of that."""
    lines = lines[-NEAR_LINES:]
    meaningful = without_goodbyes(lines)
    for find in (_of_absl, _of_usage, _of_box):
        found = find(lines, code)
        if found and (code in CODES or not any(map(str.isalnum, "".join(meaningful[found[1] + 1 :])))):
            return found[0]
    return _of_hydra(lines)


Found = tuple[str, int]  # the reason, and the index of the last line of the refusal


def _of_absl(lines: Sequence[str], _: int) -> Found | None:
    start = _last(lines, _ABSL)
    return None if start is None else _whole(lines, start)


def _of_usage(lines: Sequence[str], code: int) -> Found | None:
    """Find an error beside a usage. Most programs print the usage first; Fire and others print the error first."""
    usage = _last(lines, _USAGE)
    if usage is None:
        return None
    start = next((n for n in range(usage + 1, len(lines)) if _ERROR.match(lines[n])), None)
    if start is not None:
        return _whole(lines, start)
    before = lines[usage - 1] if usage else ""
    if not any(map(str.isalnum, before)) or not (code in CODES or _UNMATCHED.search(before)):
        return None
    end = next((n for n in range(len(lines) - 1, usage, -1) if lines[n]), usage)
    return before.strip(), end


def _of_box(lines: Sequence[str], _: int) -> Found | None:
    """Find a reason in a box, as Typer, rich-click, tyro and Cyclopts print it."""
    found = [box for box in boxes(lines) if box.title != TRACEBACK and _TITLE.search(box.title) and box.paragraph]
    if not found:
        return None
    box = found[-1]
    text = box.paragraph
    return (text if text.lower().startswith(box.title.lower()) else f"{box.title}: {text}"), box.last


def _of_hydra(lines: Sequence[str]) -> str:
    """Return the paragraph before Hydra's hint."""
    filled = [number for number, line in enumerate(lines) if line]
    if not filled or not lines[filled[-1]].startswith(_HYDRA):
        return ""
    end = next((n for n in range(filled[-1] - 1, -1, -1) if lines[n]), None)
    if end is None:
        return ""
    start = next((n for n in range(end, -1, -1) if not lines[n]), -1) + 1
    return " ".join(line.strip() for line in lines[max(start, end - 7) : end + 1])


def _whole(lines: Sequence[str], start: int) -> Found:
    """Return a message of one or more lines: a line leads on to the next, or the next is indented."""
    end = start
    while end + 1 < len(lines) and (_MORE.match(lines[end + 1]) or (lines[end].endswith(_STEPS) and lines[end + 1])):
        end += 1
    return " ".join(line.strip() for line in lines[start : end + 1]), end


def _last(lines: Sequence[str], pattern: re.Pattern[str]) -> int | None:
    return next((n for n in range(len(lines) - 1, -1, -1) if pattern.match(lines[n])), None)
