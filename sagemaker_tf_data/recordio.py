"""RecordIO, in which SageMaker wraps the objects of a channel: magic number, length, content, padding to four bytes.

The upper three bits of the length say that a record goes on in the next frame (1 and 2) or not; the contents are then
joined as they are, which is what sagemaker-tensorflow's operator does.
"""

import mmap
import struct

from sagemaker_tf_data.errors import DataError

MAGIC = 0xCED7230A
_header = struct.Struct("<II").unpack_from
_LENGTH = (1 << 29) - 1


def split(buffer: mmap.mmap | bytearray, end: int, last: bool) -> tuple[list[bytes], int]:
    """Return the whole records in `buffer[:end]`, and how many bytes they take; `last` if nothing follows.

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
                record, at = _in_frames(view[:end], at, last)
            except DataError:
                if records:
                    break  # these first; the next call begins here
                raise
            if record is None:
                break
            records.append(record)
    return records, at


def _in_frames(view: memoryview, at: int, last: bool) -> tuple[bytes | None, int]:
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
            return b"".join(parts), here
    return None, at
