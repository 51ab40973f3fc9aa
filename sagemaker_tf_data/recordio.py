"""RecordIO, MXNet's format of records: magic number, length, content, padding to four bytes.

The upper three bits of the length say that a record goes on in the next frame (1 and 2) or not. There are two opinions
on how its parts are joined. MXNet's writer begins a new frame where the content happens to hold the magic number, and
leaves that out; so its reader puts it back between the parts (`glue=WORD`), and only so do its `.rec` files come out as
they went in. (Of ImageNet's 140 GB some eight images hold it.) sagemaker-tensorflow's operator joins them as they are,
and so do we where SageMaker has wrapped the objects of a channel.
"""

import mmap
import struct
from typing import BinaryIO

from sagemaker_tf_data.errors import DataError

MAGIC = 0xCED7230A
WORD = MAGIC.to_bytes(4, "little")
_frame = struct.Struct("<II")
_header = _frame.unpack_from
_LENGTH = (1 << 29) - 1


def split(buffer: mmap.mmap | bytearray, end: int, last: bool, glue: bytes = b"") -> tuple[list[bytes], int]:
    """Return the whole records in `buffer[:end]`, and how many bytes they take; `last` if nothing follows.

    `glue` comes between the parts of a record that has several.

    Raises:
        DataError: The first record is none.
    """
    records: list[bytes] = []
    at = 0
    with memoryview(buffer) as view:
        while at + 8 <= end:
            magic, word = _header(view, at)
            stop = at + 8 + word
            after = (stop + 3) & ~3  # every frame begins at a multiple of four
            if magic == MAGIC and word <= _LENGTH and after <= end:  # nearly always, so nothing else happens here
                records.append(view[at + 8 : stop].tobytes())
                at = after
                continue
            try:
                record, at = _in_frames(view[:end], at, last, glue)
            except DataError:
                if records:
                    break  # these first; the next call begins here
                raise
            if record is None:
                break
            records.append(record)
    return records, at


def skip(buffer: mmap.mmap | bytearray, end: int, last: bool, number: int) -> int:
    """Return where so many records end, all of which are in `buffer[:end]`."""
    at = 0
    with memoryview(buffer) as view:
        for _ in range(number):
            _, at = _in_frames(view[:end], at, last, b"")
    return at


def count(file: BinaryIO, size: int) -> int:
    """Return how many records a file of `size` bytes has, by the headers of their frames.

    Raises:
        DataError: It is not, or not all, RecordIO, or ends within a record.
    """
    at = records = 0
    within = False  # a record of several frames
    while at < size:
        file.seek(at)
        header = file.read(8)
        magic, word = _header(header) if len(header) == 8 else (MAGIC, _LENGTH)
        if magic != MAGIC:
            raise DataError(
                f"after {records} records, at byte {at}: wanted RecordIO's 0x{MAGIC:08x}, found 0x{magic:08x}"
            )
        stop = at + 8 + (word & _LENGTH)
        if stop > size:
            raise DataError(f"ends within record {records}: cut off")
        at = (stop + 3) & ~3
        within = word >> 29 in (1, 2)
        records += not within
    if within:
        raise DataError(f"ends within record {records}: cut off")
    return records


def frame(record: bytes) -> bytes:
    """Return the record as MXNet writes it: in one frame, or in several where it holds the magic number.

    Raises:
        DataError: It has 2^29 bytes or more, for which RecordIO has no way, as its parts are not joined as they are.
    """
    if len(record) > _LENGTH:
        raise DataError(
            f"a record of {len(record):,} bytes; wanted fewer than {_LENGTH + 1:,}, RecordIO's limit: divide it"
        )
    parts, begin, at = [], 0, record.find(WORD)
    while at >= 0:
        aligned = at % 4 == 0  # frames begin only there, so elsewhere it does not look like one
        if aligned:
            parts.append(record[begin:at])
            begin = at + 4
        at = record.find(WORD, begin if aligned else at + 1)
    parts.append(record[begin:])
    flags = [0] if len(parts) == 1 else [1, *[2] * (len(parts) - 2), 3]
    return b"".join(
        _frame.pack(MAGIC, flag << 29 | len(part)) + part + bytes(-len(part) % 4)
        for flag, part in zip(flags, parts, strict=True)
    )


def _in_frames(view: memoryview, at: int, last: bool, glue: bytes) -> tuple[bytes | None, int]:
    """Return the record that begins at `at`, and where it ends; None, and `at`, if that is not in `view` yet."""
    parts = []
    here = at
    while here + 8 <= len(view):
        magic, word = _header(view, here)
        if magic != MAGIC:
            raise DataError(f"wanted RecordIO's magic number 0x{MAGIC:08x}, found 0x{magic:08x}")
        stop = here + 8 + (word & _LENGTH)
        after = (stop + 3) & ~3
        if after > len(view) and not (last and stop <= len(view)):  # the very last padding may be missing
            break
        parts.append(view[here + 8 : stop].tobytes())
        here = min(after, len(view))
        if word >> 29 not in (1, 2):
            return glue.join(parts), here
    return None, at
