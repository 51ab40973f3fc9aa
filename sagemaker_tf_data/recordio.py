"""Split, count and write RecordIO, MXNet's format of records: magic number, length, content, padding to four bytes.

The upper three bits of the length tell whether a record continues in the next frame (1 and 2). There are two ways to
join its parts. MXNet's writer begins a new frame where the content happens to have the magic number, and drops that
number; so its reader restores it between the parts (`glue=WORD`), and `.rec` files must be read so. (In ImageNet's
140 GB some eight images have it.) sagemaker-tensorflow's operator joins the parts without it; this library does the
same for a channel whose objects SageMaker has wrapped.
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
    """Return the whole records in `buffer[:end]`, and how many bytes they take.

    `last`: nothing follows. `glue` is inserted between the parts of a record of several frames.

    Raises:
        DataError: The buffer does not begin with a record.
    """
    records: list[bytes] = []
    at = 0
    with memoryview(buffer) as view:
        while at + 8 <= end:
            magic, word = _header(view, at)
            stop = at + 8 + word
            after = (stop + 3) & ~3  # every frame begins at a multiple of four
            if magic == MAGIC and word <= _LENGTH and after <= end:  # nearly always: keep this path short
                records.append(view[at + 8 : stop].tobytes())
                at = after
                continue
            try:
                record, at = _in_frames(view[:end], at, last, glue)
            except DataError:
                if records:
                    break  # return these; the next call begins here, and raises
                raise
            if record is None:
                break
            records.append(record)
    return records, at


def skip(buffer: mmap.mmap | bytearray, end: int, last: bool, number: int) -> int:
    """Return where the first `number` records end. All of them lie in `buffer[:end]`."""
    at = 0
    with memoryview(buffer) as view:
        for _ in range(number):
            _, at = _in_frames(view[:end], at, last, b"")
    return at


def count(file: BinaryIO, size: int) -> int:
    """Return the number of records in a file of `size` bytes, by the headers of their frames.

    Raises:
        DataError: The file is not, or not all, RecordIO, or ends within a record.
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
    """Return the record as MXNet writes it: in one frame, or in several if it contains the magic number.

    Raises:
        DataError: The record has 2^29 bytes or more. A frame cannot hold that, and to split it elsewhere than at the
            magic number is not possible, as readers insert that number between the parts.
    """
    if len(record) > _LENGTH:
        raise DataError(
            f"a record of {len(record):,} bytes; wanted fewer than {_LENGTH + 1:,}, RecordIO's limit: divide it"
        )
    parts, begin, at = [], 0, record.find(WORD)
    while at >= 0:
        aligned = at % 4 == 0  # frames begin at multiples of four, so elsewhere it is not taken for one
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
    """Return (record that begins at `at`, where it ends), or (None, `at`) if `view` does not have all of it yet."""
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
