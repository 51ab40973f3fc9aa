"""Unpack and pack records of SageMaker's own algorithms: a protobuf with named tensors, features and labels.

    Record          features 1, label 2: maps of name to Value; and texts that no algorithm uses
    Value           Float32Tensor 2, Float64Tensor 3, Int32Tensor 7, or Bytes 9
    ...Tensor       values 1; keys 2: the values' positions, if most are zero; shape 3
    Bytes           value 1

Protobuf's wire format is parsed here, with numpy, as far as these records need it. Generated code would tie the script
to one version of protobuf, which differs between TensorFlows. `tf.io.decode_proto` names neither the broken record nor
the fault in it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sagemaker_tf_data.errors import DataError
from sagemaker_tf_data.lazy import np

KIND = "SageMaker's RecordIO of protobuf"
MAPS = ("features", "label")  # fields 1 and 2 of a Record
# Field of a Value -> its name, its dtype, numpy's type for its values (None: they are varints).
TENSORS = {
    2: ("Float32Tensor", "float32", "<f4"),
    3: ("Float64Tensor", "float64", "<f8"),
    7: ("Int32Tensor", "int32", None),
}
BYTES = 9
_VARINT, _EIGHT, _BLOCK, _FOUR = 0, 1, 2, 5  # wire types
_FIXED = {_EIGHT: 8, _FOUR: 4}


@dataclass(frozen=True)
class Column:
    """Name a tensor to read from each record: `name` of `map` ("features" or "label"), of this dtype and shape.

    `dtype` is "float32", "float64" or "int32", or "string" for Bytes, which have shape [].
    """

    map: str
    name: str
    dtype: str
    shape: tuple[int, ...]
    sparse: bool = False

    @property
    def size(self) -> int:
        """Return the number of values."""
        size = 1
        for length in self.shape:
            size *= length
        return size

    def __str__(self) -> str:
        return f"{self.map}['{self.name}']"


# ---- reading


def unpack(record: bytes, columns: Sequence[Column]) -> list[Any]:
    """Return an entry for each column: bytes, an array of its shape, or if it is sparse (sorted keys, their values).

    A tensor is returned dense or sparse as the column is, whatever it is in the record.

    Raises:
        DataError: The record is no protobuf, lacks a column, or has it in another dtype or size.
    """
    entries = _entries(record)
    result: list[Any] = []
    for column in columns:
        span = entries.get((column.map, column.name))
        if span is None:
            names = ", ".join(f"{each}['{name}']" for each, name in entries) or "nothing"
            raise DataError(f"found {names}; wanted {column}: use one of these names")
        field, content = _content(record, *span, column)
        if field == BYTES:
            result.append(_bytes(record, content, column))
        else:
            values, keys = _tensor(record, content, field, column)
            result.append(_sparse(values, keys, column) if column.sparse else _dense(values, keys, column))
    return result


def _entries(record: bytes) -> dict[tuple[str, str], tuple[int, int]]:
    """Return (map, name) -> where its Value is. Of several entries with one name the last counts, as in protobuf."""
    found = {}
    for number, kind, value in _fields(record, 0, len(record)):
        if number not in (1, 2) or kind != _BLOCK:
            continue
        name, span = b"", (0, 0)
        for part, kind_of_part, where in _fields(record, *value):
            if part == 1 and kind_of_part == _BLOCK:
                name = record[where[0] : where[1]]
            elif part == 2 and kind_of_part == _BLOCK:
                span = where
        found[MAPS[number - 1], name.decode(errors="replace")] = span
    return found


def _content(record: bytes, begin: int, end: int, column: Column) -> tuple[int, tuple[int, int]]:
    """Return (field of the Value, where its content is). Raise DataError if it is not of the column's dtype."""
    given = [(number, value) for number, kind, value in _fields(record, begin, end) if kind == _BLOCK]
    number, content = given[-1] if given else (0, (0, 0))
    known = {**{field: (name, dtype) for field, (name, dtype, _) in TENSORS.items()}, BYTES: ("Bytes", "string")}
    if number not in known:
        wanted = ", ".join(f"{name} ({field})" for field, (name, _) in known.items())
        found = f"a value of an unknown type, field {number}" if number else "an empty value"
        raise DataError(f"found {found} as {column}; wanted one of {wanted}: rewrite the file as one of these")
    name, dtype = known[number]
    if dtype != column.dtype:
        raise DataError(f"found {name} as {column}; wanted {column.dtype}: ask for tf.{dtype}")
    return number, content


def _bytes(record: bytes, content: tuple[int, int], column: Column) -> bytes:
    values = [record[value[0] : value[1]] for number, _, value in _fields(record, *content) if number == 1]
    if len(values) != 1:
        raise DataError(f"found {len(values)} values as {column}; wanted one, of Bytes")
    return values[0]


def _tensor(
    record: bytes, content: tuple[int, int], field: int, column: Column
) -> "tuple[np.ndarray, np.ndarray | None]":
    """Return (values, keys or None)."""
    _, dtype, packed = TENSORS[field]
    parts: list[np.ndarray] = []
    keys: list[np.ndarray] = []
    for number, kind, value in _fields(record, *content):
        if number == 1:
            parts.append(_values(record, kind, value, packed, column))
        elif number == 2:
            keys.append(_values(record, kind, value, None, column))
    values = _joined(parts, packed or np.int64).astype(dtype)
    return values, _joined(keys, np.int64) if keys else None


def _values(record: bytes, kind: int, value: Any, packed: str | None, column: Column) -> "np.ndarray":
    """Return one piece of a repeated field: a packed array, or, as protobuf allows, a single value."""
    if packed is None:
        if kind == _VARINT:
            return np.array([value], np.uint64).astype(np.int64)
        if kind == _BLOCK:
            return _varints(np.frombuffer(record, np.uint8, value[1] - value[0], value[0]))
    elif kind != _VARINT:
        begin, end = value
        if (end - begin) % np.dtype(packed).itemsize == 0:
            return np.frombuffer(record, packed, (end - begin) // np.dtype(packed).itemsize, begin)
    raise DataError(f"found values of another type within {column}; wanted {column.dtype}: the record is damaged")


def _joined(parts: "list[np.ndarray]", dtype: Any) -> "np.ndarray":
    return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, dtype), *parts])


def _varints(encoded: "np.ndarray") -> "np.ndarray":
    """Decode varints: seven bits in each byte, the lowest first; the highest bit means that the number continues."""
    if not len(encoded):
        return np.empty(0, np.int64)
    ends = np.flatnonzero(encoded < 0x80)
    if len(ends) == len(encoded):  # all are small
        return encoded.astype(np.int64)
    if not len(ends) or ends[-1] != len(encoded) - 1:
        raise DataError("found a number that does not end; wanted varints: the record is damaged")
    begins = np.concatenate([[0], ends[:-1] + 1])
    lengths = ends - begins + 1
    if lengths.max() > 10:
        raise DataError("found a number of more than 64 bits; wanted varints: the record is damaged")
    shifts = 7 * (np.arange(len(encoded)) - np.repeat(begins, lengths))
    return np.add.reduceat((encoded & 0x7F).astype(np.uint64) << shifts.astype(np.uint64), begins).astype(np.int64)


def _dense(values: "np.ndarray", keys: "np.ndarray | None", column: Column) -> "np.ndarray":
    if keys is not None:
        keys, values = _sparse(values, keys, column)
        full = np.zeros(column.size, values.dtype)
        full[keys] = values
        values = full
    if len(values) != column.size:
        raise DataError(
            f"found {len(values)} values as {column}; wanted {column.size}, as of shape {list(column.shape)}: ask for "
            f"[{len(values)}]"
        )
    return values.reshape(column.shape)


def _sparse(values: "np.ndarray", keys: "np.ndarray | None", column: Column) -> "tuple[np.ndarray, np.ndarray]":
    if keys is None:
        keys = np.arange(len(values))
    if len(keys) != len(values):
        raise DataError(
            f"found {len(keys)} keys and {len(values)} values as {column}; wanted equal numbers: rewrite the file"
        )
    if len(keys) > 1 and (keys[1:] <= keys[:-1]).any():
        order = np.argsort(keys, kind="stable")
        keys, values = keys[order], values[order]
        if (keys[1:] == keys[:-1]).any():
            raise DataError(f"found a key twice in {column}; wanted each once: rewrite the file")
    if len(keys) and not 0 <= keys[0] <= keys[-1] < column.size:
        wrong = keys[-1] if keys[0] >= 0 else keys[0]
        raise DataError(f"found key {wrong} in {column}; wanted 0 to {column.size - 1}, as of {list(column.shape)}")
    return keys, values


def _fields(record: bytes, at: int, end: int) -> Iterator[tuple[int, int, Any]]:
    """Yield (number, wire type, value) of a message's fields; value: a varint, or (begin, end) of the content."""
    while at < end:
        tag, at = _varint(record, at, end)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT and number:
            value, at = _varint(record, at, end)
            yield number, kind, value
            continue
        if kind == _BLOCK:
            size, at = _varint(record, at, end)
        elif kind in _FIXED:
            size = _FIXED[kind]
        else:
            size = end  # more bytes than the record has, which raises below
        if at + size > end or not number:
            raise DataError(
                f"found no field of protobuf at byte {at} of the record (tag {tag}); wanted a Record of SageMaker's "
                "algorithms: read it with image_records if im2rec made it"
            )
        yield number, kind, (at, at + size)
        at += size


def _varint(record: bytes, at: int, end: int) -> tuple[int, int]:
    """Return (number, where it ends)."""
    number = shift = 0
    while at < end and shift < 70:
        byte = record[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
    raise DataError(
        f"found a number without an end at byte {at} of the record; wanted a Record of SageMaker's algorithms"
    )


# ---- writing


def pack(features: Mapping[str, Any], label: Mapping[str, Any] | None = None) -> bytes:
    """Return a record of tensors by name.

    A tensor is bytes, an array of float32, float64 or int32, or (keys, values, shape) of a sparse one.

    Raises:
        DataError: An array has another dtype.
    """
    return b"".join(
        _block(number, _block(1, name.encode()) + _block(2, _value(name, tensor)))
        for number, tensors in enumerate((features, label or {}), 1)
        for name, tensor in tensors.items()
    )


def _value(name: str, tensor: Any) -> bytes:
    if isinstance(tensor, bytes):
        return _block(BYTES, _block(1, tensor))
    keys: Any = ()
    if isinstance(tensor, tuple):
        keys, tensor, shape = tensor
    else:
        tensor = np.asarray(tensor)
        shape = tensor.shape
    values = np.asarray(tensor)
    for field, (_, dtype, packed) in TENSORS.items():
        if values.dtype == dtype:
            encoded = values.astype(packed).tobytes() if packed else _numbers(values.ravel())
            given = [_block(1, encoded), _block(2, _numbers(keys)), _block(3, _numbers(shape))]
            return _block(field, b"".join(given if len(keys) else [given[0], given[2]]))
    raise DataError(f"'{name}' is an array of {values.dtype}; wanted float32, float64 or int32, or bytes")


def _numbers(numbers: Any) -> bytes:
    return b"".join(_number(int(each) & 0xFFFF_FFFF_FFFF_FFFF) for each in numbers)


def _number(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def _block(field: int, content: bytes) -> bytes:
    return _number(field << 3 | _BLOCK) + _number(len(content)) + content
