"""Read the lines of a record from bytes that may be cut off, broken or endless, and keep the lines that are sane."""

import itertools
import json
import zlib
from collections.abc import Iterator

from entrypoint.record import lines
from entrypoint.record.members import Members

MOST_BYTES = 1 << 30  # per record, expanded
MOST_LINE = 1 << 20
BATCH_LINES = 200  # parsing lines together is faster than one by one


def first_line(data: bytes) -> lines.Host | None:
    """Return a record's first line; None if it cannot be read or is not a line of kind `host`."""
    line = next(parsed([*itertools.islice(texts_of(data[: 1 << 16], []), 1)]), None)
    return line if isinstance(line, lines.Host) else None


def count_lines(data: bytes) -> float:
    """Estimate how many lines a record has, from its beginning."""
    expand, head = zlib.decompressobj(31), data[: 1 << 16]
    try:
        count = expand.decompress(head, MOST_LINE).count(b"\n")
    except zlib.error:
        return 0.0
    return count * len(data) / max(1, len(head) - len(expand.unconsumed_tail))


def batches(texts: Iterator[bytes], every: int) -> Iterator[list[bytes]]:
    """Yield lines in batches; of samples and metrics, only those of each `every`th sample, and lines with NaN."""
    batch: list[bytes] = []
    count = 0
    for line in texts:
        if every > 1 and line.startswith((b'["sample"', b'["metric"')):
            count += line.startswith(b'["sample"')
            if count % every and b"NaN" not in line:
                continue
        batch.append(line)
        if len(batch) >= BATCH_LINES:
            yield batch
            batch = []
    yield batch


def parsed(batch: list[bytes]) -> Iterator[lines.Line | None]:
    """Yield each line, or None if it is malformed. The batch is parsed at once; only if that fails, line by line."""
    try:
        found = json.loads(b"[" + b",".join(batch) + b"]")
    except lines.WRONG:
        found = []
    of = lines.line_of if len(found) == len(batch) else lambda text: lines.line_of(json.loads(text))
    for each in found if len(found) == len(batch) else batch:
        try:
            yield of(each)
        except lines.WRONG:
            yield None


def lines_of(data: bytes) -> Iterator[lines.Line]:
    """Yield the well-formed lines of a record."""
    for batch in batches(texts_of(data, []), 1):
        yield from filter(None, parsed(batch))


def texts_of(data: bytes, problems: list[str]) -> Iterator[bytes]:
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


def text(value: str, most: int = 200) -> str:
    """Return a text, cut to `most` characters."""
    return value if len(value) <= most else value[: most - 3] + "..."
