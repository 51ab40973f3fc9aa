"""Recognise lines that programs print whenever they end, whatever the reason, and remove them. Pure.

Experiment trackers print a last line, the interpreter reports what it could not clean up, and Open MPI reports what
happened to the other ranks. None of these lines is the reason of the end.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from entrypoint.launcher.outcome.symptoms import reads_like_symptom

LONGEST_BANNER_LINES = 60  # lines

_GOODBYE = re.compile(
    # the last lines of experiment trackers
    r"^(wandb|COMET [A-Z]+|swanlab|trackio): |^wandb:$|^\[neptune\] |^neptune:|^ClearML |^ ?\[sentry\] [A-Z]+: "
    r"|^(\S+ )?(View run|View experiment) .*\bat: http"
    # the interpreter, PyTorch
    r"|^sys:\d+: \w*Warning: |/resource_tracker\.py:\d+: UserWarning: |^\[?W\d+.*destroy_process_group\(\)"
    # a hint that follows every error, and summaries of messages
    r"|^Set the environment variable HYDRA_FULL_ERROR=1 |^Pass --help(short|full) "
    r"|^\d+ total process(es)? failed to start$"
    r"|^\[[^\]]*\] (\d+ more process(es)? ha(s|ve) sent help message|Set MCA parameter \"orte_base_help)"
)
_RULE = re.compile(r"^-{60,}$")


class Banner(NamedTuple):
    """Hold what Open MPI prints between two rules, which belong to it."""

    first: int
    last: int
    words: str  # its first paragraph
    is_symptom: bool  # it reports how one rank's end has ended others


def without_goodbyes(lines: Sequence[str]) -> list[str]:
    """Return as many lines as given, with "" for each that only reports an end."""
    kept, belongs = list(lines), False
    for number, line in enumerate(lines):
        # An indented line belongs to the one before it.
        belongs = bool(_GOODBYE.search(line)) or (belongs and line[:1] in (" ", "\t"))
        if belongs:
            kept[number] = ""
    for banner in banners(lines):
        if banner.is_symptom:
            kept[banner.first : banner.last + 1] = [""] * (banner.last + 1 - banner.first)
    return kept


def banners(lines: Sequence[str]) -> Iterator[Banner]:
    """Yield Open MPI's banners in their order."""
    first: int | None = None
    for number, line in enumerate(lines):
        if not _RULE.match(line):
            continue
        inside = lines[first + 1 : number] if first is not None else []
        if first is None or not any(inside) or len(inside) > LONGEST_BANNER_LINES:
            first = number
            continue
        text = " ".join(line.strip() for line in inside)
        yield Banner(first, number, _paragraph(inside), reads_like_symptom("", text))
        first = None


def _paragraph(lines: Sequence[str]) -> str:
    sentence: list[str] = []
    for line in lines:
        if not line and sentence and not sentence[-1].endswith(":"):
            break
        sentence += [line.strip()] if line else []
    return " ".join(sentence)
