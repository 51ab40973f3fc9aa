"""Convert JSON values to arrays of exactly the dtype that a signature wants, and arrays to the body of an answer.

Nothing is rounded or guessed.
"""

import base64
import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain
from typing import Any

import numpy as np

from entrypoint.serving.served_model import Declined, Tensor

JSON = "application/json"
LINES = ("application/jsonlines", "application/x-jsonlines", "application/jsons")
CSV = "text/csv"
ACCEPTED = (JSON, *LINES, CSV)  # the first is used if the client takes anything
_FOUND = {type(None): "null", bool: "true or false", str: "text", dict: "an object", int: "a whole number"}
_BLOCK_ROWS = 1000  # rows that NumPy converts at once: other requests are answered in between
_EXACT = 2**53  # from here on floats skip whole numbers


def to_array(value: Any, tensor: Tensor) -> np.ndarray:
    """Return a JSON value as the array that `tensor` wants, with its shape. Raise Declined if it does not fit."""
    if tensor.is_text:
        array = _texts(value.tolist() if isinstance(value, np.ndarray) else value, tensor)
    else:
        array = _numbers(joined(_blocks(value)) if isinstance(value, list) else value, tensor)
    if not tensor.fits(array.shape):
        raise Declined(f"{tensor.name} has shape {list(array.shape)}; wanted {tensor}")
    return array


def _blocks(rows: list[Any]) -> Iterator[Any]:
    return (compact(rows[at : at + _BLOCK_ROWS]) for at in range(0, len(rows), _BLOCK_ROWS))


def compact(rows: list[Any]) -> Any:
    """Return rows of numbers with one shape as an array, which takes a tenth of the memory; other rows unchanged."""
    types = _types(rows)
    if types and types <= {int, float}:
        with suppress(ValueError):
            array = np.asarray(rows)
            if array.dtype.kind in "iuf" and not (array.dtype.kind == "f" and types == {int}):  # which loses digits
                return array
    return rows


def joined(blocks: Iterable[Any]) -> Any:
    """Return blocks of rows, of which some are arrays, as one array, or else as one list."""
    every = list(blocks)
    shapes = {block.shape[1:] if isinstance(block, np.ndarray) else None for block in every}
    kinds = {block.dtype.kind for block in every if isinstance(block, np.ndarray)}
    if None not in shapes and len(shapes) == 1 and not kinds >= {"i", "u"}:  # of whose mixture NumPy makes floats
        return np.concatenate(every)
    return [row for block in every for row in (block.tolist() if isinstance(block, np.ndarray) else block)]


def depth(value: Any) -> int:
    """Return how deep lists are nested, judged by the first element of each."""
    if isinstance(value, np.ndarray):
        return value.ndim
    levels = 0
    while isinstance(value, list) and levels <= 64:
        levels, value = levels + 1, value[0] if value else None
    return levels


def is_bytes(value: Any) -> bool:
    """Return whether a value is bytes as TensorFlow Serving writes them: {"b64": "..."}."""
    return isinstance(value, dict) and set(value) == {"b64"}


def _numbers(value: Any, tensor: Tensor) -> np.ndarray:
    boolean = tensor.dtype.kind == "b"
    # Checked one by one, since NumPy makes a number of a boolean among numbers.
    types = _types(value)
    if odd := types - ({bool} if boolean else {int, float}):
        found = next((words for kind, words in _FOUND.items() if kind in odd), "a number")
        raise Declined(f"{tensor.name} holds {found}; wanted {tensor}")
    try:
        array = np.asarray(value)
    except ValueError:
        raise Declined(f"{tensor.name} holds lists of different lengths; wanted {tensor}") from None
    if array.dtype.kind == "O":
        raise Declined(f"{tensor.name} holds a whole number too large; wanted {tensor}")
    if array.dtype.kind == "f" and types == {int} and np.all(array >= 0):  # NumPy's choice if some are above 2**63
        array = np.asarray(value, dtype=np.uint64)
    with np.errstate(over="ignore", invalid="ignore"):
        cast = array.astype(tensor.dtype)
        if tensor.dtype.kind in "iu":
            same = (cast.astype(array.dtype) == array) & ((cast < 0) == (array < 0))
        else:  # NaN and infinity are allowed, as in TensorFlow Serving; a number must not become one
            same = np.isfinite(cast.astype(np.float64)) | ~np.isfinite(array) if not boolean else np.True_
    if not np.all(same):
        wrong = array[~same].flat[0]
        raise Declined(f"{tensor.name} holds {wrong}, which is no {tensor.dtype.name}; wanted {tensor}")
    # If one number is a float, NumPy makes all of them floats, and large ones lose digits.
    if tensor.dtype.kind in "iu" and array.dtype.kind == "f" and np.any(large := np.abs(array) >= _EXACT):
        wrong = array[large].flat[0]
        raise Declined(f"{tensor.name} holds {wrong}, which as a float may have lost digits; wanted {tensor}")
    return cast


def _texts(value: Any, tensor: Tensor) -> np.ndarray:
    encoded = _encode(value, tensor)
    array = np.empty((), dtype=object)
    if isinstance(encoded, bytes):
        array[()] = encoded
        return array
    array = np.array(encoded, dtype=object)
    if any(isinstance(leaf, list) for leaf in array.flat):
        raise Declined(f"{tensor.name} holds lists of different lengths; wanted {tensor}")
    return array


def _encode(value: Any, tensor: Tensor) -> Any:
    if isinstance(value, list):
        return [_encode(inner, tensor) for inner in value]
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if is_bytes(value) and isinstance(value["b64"], str):
        try:
            return base64.b64decode(value["b64"], validate=True)
        except ValueError as error:
            raise Declined(f"{tensor.name} holds a b64 that is no base64: {error}") from None
    found = _FOUND.get(type(value), "a number")
    raise Declined(f'{tensor.name} holds {found}; wanted {tensor}, as "text" or {{"b64": "..."}}')


def _types(value: Any) -> set[type]:
    """Return the types of everything in nested lists, or in an array made from CSV."""
    if isinstance(value, np.ndarray):
        return {float} if value.dtype.kind == "f" else {int}
    kinds: set[type] = set()
    lists = [[value]]
    while lists:
        here = set(map(type, chain.from_iterable(lists)))
        kinds |= here
        lists = [inner for outer in lists for inner in outer if isinstance(inner, list)] if list in here else []
    return kinds - {list}


# --- the answer ---


def write(outputs: Mapping[str, np.ndarray], rows: int | None, accept: str) -> bytes:
    """Return a model's answer as the body of a response, in the form that the client accepts, one of ACCEPTED.

    `rows`: for how many rows it is; None if the client has asked by columns. NaN and infinity are written as TensorFlow
    Serving writes them.
    """
    if accept == CSV:
        return _csv(outputs)
    if rows is None:
        if accept != JSON:
            raise Declined(f'{accept} has a line for each row, and "inputs" has no rows; wanted Accept: {JSON}', 406)
        plain = {name: _plain(name, array) for name, array in outputs.items()}
        return _join("outputs", next(iter(plain.values())) if len(plain) == 1 else plain)
    predictions = _rows(outputs, rows)
    if accept in LINES:
        return "".join(json.dumps(prediction) + "\n" for prediction in predictions).encode()
    return _join("predictions", predictions)


def _join(key: str, value: Any) -> bytes:
    """Write an object by blocks of rows: other requests are answered in between."""
    if isinstance(value, list):
        blocks = [json.dumps(value[at : at + _BLOCK_ROWS])[1:-1] for at in range(0, len(value), _BLOCK_ROWS)]
        return f'{{"{key}": [{", ".join(blocks)}]}}'.encode()
    return json.dumps({key: value}).encode()


def _rows(outputs: Mapping[str, np.ndarray], count: int) -> Iterable[Any]:
    for name, array in outputs.items():
        if array.shape[:1] != (count,):
            raise Declined(
                f"output {name} has shape {list(array.shape)} for {count} rows, not one value for each; "
                'wanted columns: {"inputs": ...}'
            )
    plain = {name: _plain(name, array) for name, array in outputs.items()}
    if len(plain) == 1:
        return next(iter(plain.values()))
    return [dict(zip(plain, values, strict=True)) for values in zip(*plain.values(), strict=True)]


def _plain(name: str, array: np.ndarray) -> Any:
    """Return an array as JSON values. Bytes become text, unless the name ends in _bytes or they are no text."""
    if array.dtype.kind == "O":
        return _plain_texts(array.tolist(), name.endswith("_bytes"))
    return (array.astype(np.float32) if array.dtype.kind == "V" else array).tolist()  # V: bfloat16


def _plain_texts(value: Any, as_bytes: bool) -> Any:
    if isinstance(value, list):
        return [_plain_texts(inner, as_bytes) for inner in value]
    try:
        return {"b64": base64.b64encode(value).decode()} if as_bytes else value.decode()
    except UnicodeDecodeError:
        return _plain_texts(value, True)


def _csv(outputs: Mapping[str, np.ndarray]) -> bytes:
    if len(outputs) != 1:
        raise Declined(f"{CSV} cannot name several outputs ({', '.join(outputs)}); wanted Accept: {JSON}", 406)
    ((name, array),) = outputs.items()
    table = array.reshape(array.shape[0] if array.ndim else 1, -1)
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(_plain(name, table))
    return text.getvalue().encode()
