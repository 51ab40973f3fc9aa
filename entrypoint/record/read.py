"""Read the lines of a record from bytes that may be cut off, broken or endless, and keep the lines that are sane."""

import json
import math
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

from entrypoint.record.line import MOST_NUMBER, WRONG, Line
from entrypoint.record.lines import About, is_value
from entrypoint.record.members import Members

MOST_BYTES = 1 << 30  # per record, expanded
MOST_LINE = 1 << 20
BATCH_LINES = 200  # parsing lines together is faster than one by one
DEEPEST = 8  # the most in an honest line


def first_line(data: bytes) -> About | None:
    """Return a record's first line; None if it cannot be read or is not a line of kind `host`."""
    try:
        line = Line.from_line(next(lines_of(data[: 1 << 16], [])))
    except (StopIteration, *WRONG):
        return None
    return line if isinstance(line, About) else None


def count_lines(data: bytes) -> float:
    """Estimate how many lines a record has, from its beginning."""
    expand, head = zlib.decompressobj(31), data[: 1 << 16]
    try:
        count = expand.decompress(head, MOST_LINE).count(b"\n")
    except zlib.error:
        return 0.0
    return count * len(data) / max(1, len(head) - len(expand.unconsumed_tail))


def batches(lines: Iterator[bytes], every: int) -> Iterator[list[bytes]]:
    """Yield lines in batches; of samples and metrics, only those of each `every`th sample, and lines with NaN."""
    batch: list[bytes] = []
    count = 0
    for line in lines:
        if every > 1 and line.startswith((b'["sample"', b'["metric"')):
            count += line.startswith(b'["sample"')
            if count % every and b"NaN" not in line:
                continue
        batch.append(line)
        if len(batch) >= BATCH_LINES:
            yield batch
            batch = []
    yield batch


def parsed(lines: list[bytes]) -> Iterator[Any]:
    """Yield the value of each line; None for a line that cannot be parsed.

    The batch is parsed at once; only if that fails is it parsed line by line.
    """
    try:
        found = json.loads(b"[" + b",".join(lines) + b"]")
    except WRONG:
        found = []
    if len(found) == len(lines):
        yield from found
        return
    for line in lines:
        try:
            yield json.loads(line)
        except WRONG:
            yield None


def lines_of(data: bytes, problems: list[str]) -> Iterator[bytes]:
    """Yield the whole lines of a record; append what is wrong with the rest to `problems`."""
    members, rest, size = Members(), b"", 0
    for piece in members.expand(data):
        size += len(piece)
        *whole, rest = (rest + piece).split(b"\n") if piece else (b"",)
        yield from whole
        if size > MOST_BYTES or len(rest) > MOST_LINE:
            problems.append("it is longer than the limit")
            return
    if members.broken:
        problems.append("a part of it is broken")
    if not size:
        problems.append("it is empty, or not a record")


def arrays_of(data: bytes) -> Iterator[list[Any]]:
    """Yield the lines of a record that `is_line` accepts."""
    for batch in batches(lines_of(data, []), 1):
        yield from (line for line in parsed(batch) if is_line(line))


def is_line(line: Any) -> bool:
    """Return whether a value may be a line of a record: an array of a kind, a time, and values with sane numbers."""
    match line:
        case ["decided" | "described", at, _]:  # the readers of these check the values
            return _is_number(at)
        case ["metric", at, str(), dict(found)]:
            return _is_number(at) and all(is_value(name, value) for name, value in found.items())
        case ["metric", *_]:
            return False
        case ["weights", at, str(), step, int() | float(), int() | float()]:  # NaN if a training has diverged
            return _is_number(at) and _is_number(step)
        case [str(), at, *values]:
            return _is_number(at) and _is_sane(values)
    return False


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < MOST_NUMBER


def _is_sane(value: Any, depth: int = DEEPEST) -> bool:
    """Return whether all numbers in a value are finite and of a sane size."""
    if isinstance(value, int | float):
        return math.isfinite(value) and abs(value) < MOST_NUMBER
    if isinstance(value, Mapping):
        value = list(value.values())
    return depth > 0 and all(_is_sane(each, depth - 1) for each in value) if isinstance(value, list) else True


def text(value: str, most: int = 200) -> str:
    """Return a text, cut to `most` characters."""
    return value if len(value) <= most else value[: most - 3] + "..."
