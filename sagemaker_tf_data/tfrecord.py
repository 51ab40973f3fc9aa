"""Find where TFRecords end. TensorFlow reads their contents and checks their checksums."""

import mmap
import struct

from sagemaker_tf_data.errors import DataError

HEADER = 12  # length 8 bytes, its checksum 4
FRAME = HEADER + 4  # with the content's checksum, which follows the content
_length = struct.Struct("<Q").unpack_from
_header = struct.Struct("<QI").unpack_from


def whole(buffer: memoryview | bytes, end: int) -> tuple[int, int]:
    """Return (number, bytes) of the whole records at the beginning of `buffer[:end]`."""
    at = number = 0
    while at + HEADER <= end:
        (length,) = _length(buffer, at)
        after: int = at + length + FRAME
        if after > end:
            break
        at = after
        number += 1
    return number, at


def size(buffer: mmap.mmap | bytes) -> int:
    """Return the size in bytes of the first record with its frame; the buffer must have its header.

    Raises:
        DataError: No record begins there: the checksum of the length is wrong.
    """
    length, checksum = _header(buffer, 0)
    if masked_crc32c(buffer[:8]) != checksum:
        raise DataError(f"wanted a TFRecord's length and its checksum, found {buffer[:HEADER].hex(' ')}")
    return FRAME + int(length)


def masked_crc32c(content: bytes) -> int:
    """Return TFRecord's checksum. Slow: for lengths, not for contents."""
    crc = 0xFFFFFFFF
    for byte in content:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_TABLE = _table()
