"""Write the model's arrays as the body of a response, in the form that the client accepts."""

import base64
import csv
import io
import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from entrypoint.serving.model import Refused
from entrypoint.serving.request import CSV, JSON, LINES, Question

ACCEPTED = (JSON, *LINES, CSV)  # the first is used if the client takes anything


def write(outputs: Mapping[str, np.ndarray], question: Question, accept: str) -> bytes:
    """Write the body as `accept`, one of ACCEPTED. NaN and infinity are written as TensorFlow Serving writes them."""
    if accept == CSV:
        return _csv(outputs)
    if question.rows is None:
        if accept != JSON:
            raise Refused(f'{accept} has a line for each row, and "inputs" has no rows; wanted Accept: {JSON}', 406)
        plain = {name: _plain(name, array) for name, array in outputs.items()}
        return _join("outputs", next(iter(plain.values())) if len(plain) == 1 else plain)
    predictions = _rows(outputs, question.rows)
    if accept in LINES:
        return "".join(json.dumps(prediction) + "\n" for prediction in predictions).encode()
    return _join("predictions", predictions)


def _join(key: str, value: Any) -> bytes:
    """Write an object row by row, so that other threads run in between."""
    if isinstance(value, list):
        return f'{{"{key}": [{", ".join([json.dumps(row) for row in value])}]}}'.encode()
    return json.dumps({key: value}).encode()


def _rows(outputs: Mapping[str, np.ndarray], count: int) -> Iterable[Any]:
    for name, array in outputs.items():
        if array.shape[:1] != (count,):
            raise Refused(
                f"output {name} has shape {list(array.shape)} for {count} rows, not one value for each; "
                'wanted columns: {"inputs": ...}'
            )
    plain = {name: _plain(name, array) for name, array in outputs.items()}
    if len(plain) == 1:
        return next(iter(plain.values()))
    return [dict(zip(plain, values, strict=True)) for values in zip(*plain.values(), strict=True)]


def _plain(name: str, array: np.ndarray) -> Any:
    """Return an array as JSON values.

    Bytes become text, unless the output's name ends in _bytes or they are no text.
    """
    if array.dtype.kind == "O":
        return _texts(array.tolist(), name.endswith("_bytes"))
    return (array.astype(np.float32) if array.dtype.kind == "V" else array).tolist()  # V: bfloat16


def _texts(value: Any, as_bytes: bool) -> Any:
    if isinstance(value, list):
        return [_texts(inner, as_bytes) for inner in value]
    try:
        return {"b64": base64.b64encode(value).decode()} if as_bytes else value.decode()
    except UnicodeDecodeError:
        return _texts(value, True)


def _csv(outputs: Mapping[str, np.ndarray]) -> bytes:
    if len(outputs) != 1:
        raise Refused(f"{CSV} cannot name several outputs ({', '.join(outputs)}); wanted Accept: {JSON}", 406)
    ((name, array),) = outputs.items()
    table = array.reshape(array.shape[0] if array.ndim else 1, -1)
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(_plain(name, table))
    return text.getvalue().encode()
