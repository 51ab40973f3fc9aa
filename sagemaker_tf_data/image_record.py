"""Pack and unpack records of MXNet's im2rec: labels and an image, behind a header of 24 bytes.

The header has a flag, a label, and two numbers that identify the image. With flag 0 the image has that label; a larger
flag is the number of labels, of four bytes each, that follow the header instead.
"""

import struct
from collections.abc import Sequence

from sagemaker_tf_data.errors import DataError

KIND = "im2rec's RecordIO of images"
_header = struct.Struct("<IfQQ")
_BEGINNINGS = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n")  # JPEG, PNG: what im2rec writes


def pack(image: bytes, labels: float | Sequence[float], number: int = 0) -> bytes:
    """Return a record: with flag 0 if `labels` is a number, with the labels behind the header if it is a sequence."""
    if isinstance(labels, int | float):
        return _header.pack(0, labels, number, 0) + image
    return _header.pack(len(labels), 0.0, number, 0) + struct.pack(f"<{len(labels)}f", *labels) + image


def unpack(record: bytes, labels: int | None) -> tuple[bytes, bytes]:
    """Return (image, its labels as little-endian float32 in a row). `labels`: the expected number, None for any.

    Raises:
        DataError: The record is too short, its image is neither JPEG nor PNG, or it has more or fewer labels.
    """
    if len(record) < _header.size:
        raise DataError(f"found a record of {len(record)} bytes; wanted im2rec's header of {_header.size} and an image")
    flag, *_ = _header.unpack_from(record)
    begin = _header.size + 4 * flag
    if not record.startswith(_BEGINNINGS, begin):
        found = record[begin : begin + 4].hex(" ") or "nothing"
        raise DataError(
            f"found {found} where the image begins (flag {flag}, so at byte {begin} of the record); wanted a JPEG or "
            "PNG: make the file with im2rec and --encoding .jpg, or read it with protobuf_records if it is protobuf"
        )
    found_labels = record[_header.size : begin] if flag else record[4:8]
    number = len(found_labels) // 4
    if labels is not None and number != labels:
        raise DataError(
            f"found {number} labels of an image; wanted {labels}: pass labels={number}, "
            "or labels=None where images have different numbers of them"
        )
    return record[begin:], found_labels
