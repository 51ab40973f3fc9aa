"""The lines of a record, out of bytes that may be cut, broken, or expand without end; and what is sane in them."""

import json
import zlib
from collections.abc import Iterator
from typing import Any

MOST_BYTES = 1 << 30  # of one record, expanded
MOST_LINE = 1 << 20
BATCH = 200  # lines: so many are read faster at once than one by one
WRONG = (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError)


def first_line(data: bytes) -> tuple[float, dict[str, Any]] | None:
    """Return (time, about) of a record's first line; None if it is none."""
    try:
        line = json.loads(zlib.decompressobj(31).decompress(data[: 1 << 16], MOST_LINE).partition(b"\n")[0])
        return (number(line[1]), dict(line[2])) if line[0] == "host" else None
    except (zlib.error, *WRONG):
        return None


def count_lines(data: bytes) -> float:
    """Return about how many lines a record has, by its beginning."""
    expand, head = zlib.decompressobj(31), data[: 1 << 16]
    try:
        count = expand.decompress(head, MOST_LINE).count(b"\n")
    except zlib.error:
        return 0.0
    return count * len(data) / max(1, len(head) - len(expand.unconsumed_tail))


def batches(lines: Iterator[bytes], every: int) -> Iterator[list[bytes]]:
    """Yield lines, many at once, of samples and metrics those of each `every`th sample."""
    batch: list[bytes] = []
    count = 0
    for line in lines:
        if every > 1 and line.startswith((b'["sample"', b'["metric"')):
            count += line.startswith(b'["sample"')
            if count % every and b"NaN" not in line:
                continue
        batch.append(line)
        if len(batch) >= BATCH:
            yield batch
            batch = []
    yield batch


def parsed(lines: list[bytes]) -> Iterator[Any]:
    """Yield what is in the lines; None for one that cannot be read. All at once, unless there is such a one."""
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
    expand, rest, size = zlib.decompressobj(31), b"", 0
    try:
        while data and not expand.eof:
            piece = expand.decompress(data, 1 << 20)
            data, size = expand.unconsumed_tail, size + len(piece)
            *whole, rest = (rest + piece).split(b"\n")
            yield from whole
            if size > MOST_BYTES or len(rest) > MOST_LINE:
                problems.append("it is longer than is read")
                return
    except zlib.error:
        problems.append("from some place on it is broken")
    if not size:
        problems.append("it is empty, or no record")


def arrays_of(data: bytes) -> Iterator[list[Any]]:
    """Yield the lines of a record, as far as it goes and they are what a record has: arrays."""
    for batch in batches(lines_of(data, []), 1):
        yield from (line for line in parsed(batch) if isinstance(line, list))


def number(value: Any) -> float:
    """Return a finite number of a sane size; ValueError else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e18:
        raise ValueError("no number")
    return float(value)


def numbers(values: list[Any]) -> list[float]:
    """Return a list that holds nothing but such numbers; ValueError or TypeError else."""
    if not abs(sum(values)) < 1e18:
        raise ValueError("no numbers")
    return values


def text(value: Any, most: int = 200) -> str:
    """Return a text, cut; ValueError if it is none."""
    if not isinstance(value, str):
        raise ValueError("no text")
    return value if len(value) <= most else value[: most - 3] + "..."
