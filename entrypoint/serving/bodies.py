"""Read the body of a request into named arrays: JSON as TensorFlow Serving takes it, JSON lines, CSV."""

import csv
import io
import json
import json.decoder
import json.scanner
import math
import re
import sys
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from entrypoint.serving.served_model import Declined, Signature, Tensor, choose
from entrypoint.serving.tensors import CSV, JSON, LINES, compact, depth, is_bytes, joined, to_array

WANTED = f"{JSON}, {LINES[0]} or {CSV}"
_GZIP = b"\x1f\x8b"  # neither JSON nor CSV begins so
_PACKED = {"gzip": zlib.MAX_WBITS | 16, "x-gzip": zlib.MAX_WBITS | 16, "deflate": zlib.MAX_WBITS}
_BLOCK_CHARS = 1 << 16  # characters of rows that become an array at once
_BLOCK_LINES = 1000  # lines of CSV that NumPy converts at once: other requests are answered in between
_PACKED_BYTES = 4096  # bytes that are expanded at once: what follows a gzip member among them is copied for each member
_ZEROS = re.compile(rb"\0*")  # may stand behind a member
csv.field_size_limit(sys.maxsize)  # the body's size is limited


@dataclass(frozen=True)
class Question:
    """Hold the input of the model. With `rows`, the answer is a list with a prediction for each of `rows` rows."""

    signature: Signature
    inputs: Mapping[str, np.ndarray]
    rows: int | None = None


def read(body: bytes, content_type: str, signatures: Mapping[str, Signature]) -> Question:
    """Read a body. Raise Declined, with what the signature wants, if that fails. Without a content type it is JSON."""
    try:
        if content_type in ("", JSON):
            return _read_json(body, signatures)
        if content_type in LINES:
            return _read_lines(body, signatures)
        if content_type == CSV:
            return _read_csv(body, choose(signatures))
    except UnicodeDecodeError as error:
        raise Declined(f"the body is not UTF-8: {error.reason} at byte {error.start}") from None
    except RecursionError:
        raise Declined("the body holds lists or objects that are nested too deep") from None
    raise Declined(f"the content type is {content_type[:100]!r}; wanted {WANTED}", 415)


def unpacked(body: bytes, encoding: str) -> Iterator[bytes]:
    """Return the body without compression, in pieces. A client may compress without naming it as Content-Encoding.

    Raise Declined, while the pieces are read, if that fails.
    """
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        if not body.startswith(_GZIP):
            yield body
            return
        encoding = "gzip"
    if encoding not in _PACKED:
        raise Declined(f"Content-Encoding is {encoding[:100]!r}; wanted gzip, deflate or none", 415)
    at, view = 0, memoryview(body)
    try:
        while at < len(body):  # gzip may have several members
            stream = zlib.decompressobj(_PACKED[encoding])
            while not stream.eof:
                if at >= len(body):
                    raise Declined(f"the body is {encoding} and ends too early")
                if piece := stream.decompress(view[at : at + _PACKED_BYTES]):
                    yield piece
                at = min(at + _PACKED_BYTES, len(body)) - len(stream.unused_data)
            at = _ZEROS.match(body, at).end()  # type: ignore[union-attr]
    except zlib.error as error:
        raise Declined(f"the body cannot be expanded as {encoding}: {error}") from None


# --- JSON ---


class _Piecewise(json.JSONDecoder):
    """Call the fast decoder for each row: other requests are answered in between. Rows of numbers become an array."""

    def __init__(self) -> None:
        super().__init__()
        row = json.scanner.make_scanner(self)  # type: ignore[arg-type]
        self.parse_array = lambda where, _: _read_array(where, row)  # type: ignore[attr-defined]
        self.scan_once: Any = json.scanner.py_make_scanner(self)  # type: ignore[attr-defined]


def _read_array(where: tuple[str, int], read_row: Any) -> tuple[Any, int]:
    blocks: list[Any] = []
    rows: list[Any] = []
    began = where[1]

    def read(text: str, at: int) -> tuple[None, int]:
        nonlocal rows, began
        if at - began > _BLOCK_CHARS:
            blocks.append(compact(rows))
            rows, began = [], at
        row, end = read_row(text, at)
        rows.append(row)
        return None, end

    _, end = json.decoder.JSONArray(where, read)  # type: ignore[attr-defined]
    return joined([*blocks, compact(rows)]), end


_piecewise, _plain = _Piecewise(), json.JSONDecoder()


def _parse(text: str, where: str, decoder: json.JSONDecoder = _piecewise) -> Any:
    try:
        return decoder.decode(text)
    except ValueError as error:
        raise Declined(f"{where} is not JSON: {error}" if text.strip() else f"{where} is empty") from error


def _read_json(body: bytes, signatures: Mapping[str, Signature]) -> Question:
    try:
        return _from_json(_parse(body.decode("utf-8-sig"), "the body"), signatures)
    except Declined as error:
        if getattr(error.__cause__, "msg", "") != "Extra data":
            raise
        return _read_lines(body, signatures)  # batch transform joins lines and calls them JSON


def _read_lines(body: bytes, signatures: Mapping[str, Signature]) -> Question:
    lines = [(number, line) for number, line in enumerate(body.splitlines(), 1) if line.strip()]
    rows = [_parse(line.decode("utf-8-sig"), f"line {number}", _plain) for number, line in lines]
    if len(rows) == 1 and isinstance(rows[0], dict):
        return _from_json(rows[0], signatures)
    return _by_row(rows, choose(signatures))


def _from_json(data: Any, signatures: Mapping[str, Signature]) -> Question:
    if not isinstance(data, dict):
        return _bare(data, choose(signatures))
    if "instances" in data and "inputs" in data:
        raise Declined('the body has both "instances" (rows) and "inputs" (columns); wanted one of them')
    if "instances" in data:
        return _by_row(data["instances"], choose(signatures, data.get("signature_name")))
    if "inputs" in data:
        return _by_column(data["inputs"], choose(signatures, data.get("signature_name")))
    signature = choose(signatures)
    if not {tensor.name for tensor in signature.inputs} & set(data):
        raise Declined(f'the body has neither "instances" (rows) nor "inputs" (columns); {signature.wants}')
    row = {key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in data.items()}
    return _by_row([row], signature)


def _bare(data: Any, signature: Signature) -> Question:
    """Read values without "instances" around them: several rows or one, as the signature shows."""
    if isinstance(data, list) and data and isinstance(data[0], dict) and not is_bytes(data[0]):
        return _by_row(data, signature)
    shape = signature.inputs[0].shape if len(signature.inputs) == 1 else None
    is_one = depth(data) < (2 if shape is None else len(shape))
    one = data[np.newaxis] if isinstance(data, np.ndarray) else [data]
    return _by_row(one if is_one else data, signature)


def _by_row(rows: Any, signature: Signature) -> Question:
    if not isinstance(rows, list | np.ndarray) or not len(rows):
        found = "an empty list" if isinstance(rows, list) else "no list"
        raise Declined(f"the rows are {found}; wanted one or more; {signature.wants}")
    names = {tensor.name for tensor in signature.inputs}
    named = [isinstance(row, dict) and not is_bytes(row) for row in rows] if isinstance(rows, list) else []
    if not any(named):
        if len(names) != 1:
            raise Declined(
                f"the rows do not name their inputs; wanted objects with {_listed(names)}; {signature.wants}"
            )
        (tensor,) = signature.inputs
        return Question(signature, {tensor.name: to_array(rows, tensor)}, len(rows))
    for number, row in enumerate(rows):
        if not named[number]:
            raise Declined(f"row {number} is no object, others are; wanted {_listed(names)} in each; {signature.wants}")
        _check_names(f"row {number}", row, signature)
    columns = {tensor.name: to_array([row[tensor.name] for row in rows], tensor) for tensor in signature.inputs}
    return Question(signature, columns, len(rows))


def _by_column(columns: Any, signature: Signature) -> Question:
    if not isinstance(columns, dict) or is_bytes(columns):
        if len(signature.inputs) != 1:
            raise Declined(f'"inputs" does not name its inputs; wanted an object; {signature.wants}')
        columns = {signature.inputs[0].name: columns}
    _check_names('"inputs"', columns, signature)
    return Question(signature, {tensor.name: to_array(columns[tensor.name], tensor) for tensor in signature.inputs})


def _check_names(where: str, found: Mapping[str, Any], signature: Signature) -> None:
    names = {tensor.name for tensor in signature.inputs}
    if missing := names - set(found):
        raise Declined(f"{where} lacks {_listed(missing)}; {signature.wants}")
    if unknown := set(found) - names:
        raise Declined(f"{where} has {_listed(unknown)}, which the model does not know; {signature.wants}")


def _listed(names: set[str]) -> str:
    return ", ".join(name[:100] for name in sorted(names)[:10])


# --- CSV ---


def _read_csv(body: bytes, signature: Signature) -> Question:
    """Read CSV. A line is a row: its columns are the row's values, in order."""
    if len(signature.inputs) != 1:
        raise Declined(f"{CSV} cannot name several inputs; wanted {JSON}; {signature.wants}")
    (tensor,) = signature.inputs
    try:
        lines = [line for line in csv.reader(io.TextIOWrapper(io.BytesIO(body), "utf-8-sig", newline="")) if line]
    except csv.Error as error:
        raise Declined(f"the body is not CSV: {error}") from None
    if not lines:
        raise Declined("the body is empty")
    for number, line in enumerate(lines, 1):
        if len(line) != len(lines[0]):
            raise Declined(f"row {number} has {len(line)} columns, row 1 has {len(lines[0])}; {signature.wants}")
    values = lines if tensor.is_text else _csv_numbers(lines, tensor)
    return Question(signature, {tensor.name: to_array(_as_rows(values, tensor), tensor)}, len(lines))


def _csv_numbers(lines: list[list[str]], tensor: Tensor) -> np.ndarray:
    for dtype in (np.int64, np.float64) if tensor.dtype.kind in "iu" else (np.float64,):
        try:
            blocks = (np.array(lines[at : at + _BLOCK_LINES], dtype) for at in range(0, len(lines), _BLOCK_LINES))
            return np.concatenate(list(blocks))
        except (ValueError, OverflowError):
            pass
    for number, line in enumerate(lines, 1):
        for column, text in enumerate(line, 1):
            try:
                float(text)
            except ValueError:
                where = f"row {number}, column {column}"
                raise Declined(f"{where} is {text[:100]!r}, which is no number; wanted {tensor}") from None
    raise Declined(f"a value is out of range; wanted {tensor}")


def _as_rows(values: Any, tensor: Tensor) -> Any:
    """Return lines of values in the shape of the signature's rows, if the number of values fits."""
    columns = len(values[0])
    row = (None,) * int(columns > 1) if tensor.shape is None else tensor.shape[1:]
    known = math.prod(size for size in row if size is not None)
    if row.count(None) > 1 or not known or columns % known or (None not in row and columns != known):
        return values
    shape = [len(values), *(columns // known if size is None else size for size in row)]
    reshaped = np.array(values, dtype=object if tensor.is_text else None).reshape(shape)
    return reshaped.tolist() if tensor.is_text else reshaped
