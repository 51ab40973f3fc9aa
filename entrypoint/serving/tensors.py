"""From JSON values to arrays of exactly the dtype that a signature wants. Nothing is rounded or guessed on the way."""

import base64
import binascii
from collections.abc import Iterator
from typing import Any

import numpy as np

from entrypoint.serving.model import Refused, Tensor

_FOUND = {type(None): "null", bool: "true or false", str: "text", dict: "an object", int: "a whole number"}


def to_array(value: Any, tensor: Tensor) -> np.ndarray:
    """A JSON value as the array that `tensor` wants, its shape included; Refused if it is none."""
    array = _texts(value, tensor) if tensor.is_text else _numbers(value, tensor)
    if not tensor.fits(array.shape):
        raise Refused(f"{tensor.name} has shape {list(array.shape)}; wanted {tensor}")
    return array


def depth(value: Any) -> int:
    """How deep lists are nested, going by the first of each."""
    levels = 0
    while isinstance(value, list) and levels <= 64:
        levels, value = levels + 1, value[0] if value else None
    return levels


def is_bytes(value: Any) -> bool:
    """Whether it is how TensorFlow Serving writes bytes: {"b64": "..."}."""
    return isinstance(value, dict) and set(value) == {"b64"}


def _numbers(value: Any, tensor: Tensor) -> np.ndarray:
    try:
        array = np.asarray(value)
    except ValueError:
        raise Refused(f"{tensor.name} holds lists of different lengths; wanted {tensor}") from None
    boolean = tensor.dtype.kind == "b"
    if array.dtype.kind not in ("b" if boolean else "iuf"):
        fine = bool if boolean else (int, float)
        odd = (leaf for leaf in _leaves(value) if not isinstance(leaf, fine) or isinstance(leaf, bool) is not boolean)
        found = _FOUND.get(type(next(odd, 0)), "a number")
        raise Refused(f"{tensor.name} holds {found}{' too large' if found == _FOUND[int] else ''}; wanted {tensor}")
    with np.errstate(over="ignore", invalid="ignore"):
        cast = array.astype(tensor.dtype)
        if tensor.dtype.kind in "iu":
            same = (cast.astype(array.dtype) == array) & ((cast < 0) == (array < 0))
        else:  # NaN and infinity are fine, as TensorFlow Serving takes them; a number that becomes one is not
            same = np.isfinite(cast.astype(np.float64)) | ~np.isfinite(array) if not boolean else np.True_
    if not np.all(same):
        wrong = array[~same].flat[0]
        raise Refused(f"{tensor.name} holds {wrong}, which is no {tensor.dtype.name}; wanted {tensor}")
    return cast


def _texts(value: Any, tensor: Tensor) -> np.ndarray:
    encoded = _encode(value, tensor)
    array = np.empty((), dtype=object)
    if isinstance(encoded, bytes):
        array[()] = encoded
        return array
    array = np.array(encoded, dtype=object)
    if any(isinstance(leaf, list) for leaf in array.flat):
        raise Refused(f"{tensor.name} holds lists of different lengths; wanted {tensor}")
    return array


def _encode(value: Any, tensor: Tensor) -> Any:
    if isinstance(value, list):
        return [_encode(inner, tensor) for inner in value]
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if is_bytes(value) and isinstance(value["b64"], str):
        try:
            return base64.b64decode(value["b64"], validate=True)
        except binascii.Error as error:
            raise Refused(f"{tensor.name} holds a b64 that is no base64: {error}") from None
    found = _FOUND.get(type(value), "a number")
    raise Refused(f'{tensor.name} holds {found}; wanted {tensor}, as "text" or {{"b64": "..."}}')


def _leaves(value: Any) -> Iterator[Any]:
    todo = [value]
    while todo:
        value = todo.pop()
        if isinstance(value, list):
            todo += reversed(value)
        else:
            yield value
