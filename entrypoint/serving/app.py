"""Make the Flask application: invocations, and the model's address as in TensorFlow Serving."""

import json
import logging
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import flask
from werkzeug.exceptions import HTTPException

from entrypoint.serving.bodies import read, unpacked
from entrypoint.serving.served_model import Declined, ServedModel
from entrypoint.serving.serving_config import Serving
from entrypoint.serving.tensors import ACCEPTED, CSV, JSON, LINES, write
from entrypoint.serving.user_code import ATTRIBUTES, InferenceCode

ENCODING = "Content-Encoding"
INVOCATIONS = "/invocations"
INNER = "/v1/models/"
LOOPBACK = "127.0.0.1"
_BOMB = 10_000  # bytes of memory for one of a compressed body; text of numbers needs about 1,000

log = logging.getLogger("serve")
# Bytes that Python and NumPy take at most for what begins with a character, in JSON or CSV: a number or text and its
# place in a list, a list or a line, an object, a key with its value, half of a string. test_serving.py measures them.
_COST = {b",": 50, b"[": 100, b"\n": 240, b"{": 240, b":": 110, b'"': 40}
_CSV_COST = {**_COST, b",": 110}  # of CSV each number is a text first


def cost(pieces: Iterable[bytes], most: int, is_csv: bool = False) -> int:
    """Return how many bytes it takes at most to read a body. Raise Declined if the body has more than `most`."""
    size = values = 0
    is_ascii = True
    for piece in pieces:
        size += len(piece)
        if size > most:
            raise Declined(f"the body is larger than {most >> 20} MB when it is expanded", 413)
        is_ascii = is_ascii and piece.isascii()
        values += sum(each * piece.count(mark) for mark, each in (_CSV_COST if is_csv else _COST).items())
    return size * (3 if is_ascii else 6) + values  # Python's text has up to four bytes for each character


class Memory:
    """Limit the memory that requests take: a request waits until enough bytes are free."""

    def __init__(self, most: int) -> None:
        self._most, self._used, self._changed = most, 0, threading.Condition()

    @contextmanager
    def taken(self, size: int) -> Iterator[Callable[[int], None]]:
        """Take `size` bytes, once they are free. Yield a function that reduces them. Raise Declined for too many."""
        if size > self._most:
            raise Declined(
                f"to read the body may take {size >> 20} MB of memory; wanted {self._most >> 20} MB at most: "
                "send fewer values at once (in batch transform by a smaller MaxPayloadInMB, or BatchStrategy "
                "SingleRecord), or use an instance with more memory",
                413,
            )
        with self._changed:
            self._changed.wait_for(lambda: self._used + size <= self._most)
            self._used += size

        def reduce(to: int) -> None:
            nonlocal size
            with self._changed:
                self._used -= max(0, size - to)
                size = min(size, to)
                self._changed.notify_all()

        try:
            yield reduce
        finally:
            reduce(0)


class Service:
    """Answer requests by the model and the user's code around it, which are None until they are loaded."""

    def __init__(self, serving: Serving) -> None:
        self.serving = serving
        self.model: ServedModel | None = None
        self.code: InferenceCode | None = None
        self.own_port = serving.port  # at which the user's code asks the model
        self.memory = Memory(serving.memory)

    @property
    def loaded(self) -> ServedModel:
        assert self.model is not None, "no request comes before the model is loaded"
        return self.model

    def ask(self, body: bytes, content_type: str = JSON, accept: str = JSON, encoding: str = "") -> tuple[int, bytes]:
        """Return the status and the body of the model's answer, or of the refusal."""
        try:
            need = cost(unpacked(body, encoding), self.serving.max_payload, content_type == CSV)
            if need > max(_BOMB * len(body), 16 * self.serving.max_payload):
                raise Declined(f"a body of {len(body)} bytes expands to what may take {need >> 20} MB to read", 413)
            with self.memory.taken(need) as reduce:
                question = read(b"".join(unpacked(body, encoding)), content_type, self.loaded.signatures)
                reduce(2 * sum(array.nbytes for array in question.inputs.values()))
                return 200, write(self.loaded.predict(question.signature.name, question.inputs), question.rows, accept)
        except BaseException as error:  # Flask and waitress ignore what is no Exception: the client would wait for ever
            return refusal(error)


def refusal(error: BaseException) -> tuple[int, bytes]:
    """Return status and body for an error. If the fault is ours or the model's, the client gets one line."""
    if isinstance(error, Declined):
        status, why = error.status, str(error)
        if status >= 500:
            log.error("%s", error)
    else:
        status, why = 500, f"the model failed: {type(error).__name__}; see the container's log"
        log.error("%s %s failed", flask.request.method, flask.request.path, exc_info=error)
    return status, json.dumps({"error": why}).encode()


def make_app(service: Service) -> Any:
    """Return the application. It answers 503 until the service is ready."""
    app = flask.Flask("serve", static_folder=None)

    def response(status: int, body: bytes, kind: str = JSON) -> Any:
        return flask.Response(body, status, content_type=kind if status == 200 else JSON)

    @app.errorhandler(HTTPException)
    def no_such_thing(error: HTTPException) -> Any:
        there = f"GET /ping, POST {INVOCATIONS}, GET /execution-parameters"
        response: Any = error.get_response()  # keeps the headers, such as Allow
        why = f"{flask.request.method} {flask.request.path[:100]}: {error.name}; there are {there}"
        response.data, response.content_type = json.dumps({"error": why}), JSON
        return response

    @app.errorhandler(Exception)
    def failed(error: Exception) -> Any:
        return response(*refusal(error))

    @app.post(INVOCATIONS)
    def invocations() -> Any:
        model, body, headers = service.loaded, flask.request.get_data(), flask.request.headers
        _check_attributes(headers.get(ATTRIBUTES, ""), model)
        if service.code is not None:
            uri = f"http://{LOOPBACK}:{service.own_port}{INNER}{model.name}:predict"
            return response(200, *service.code.answer(body, headers, model, uri, service.ask))
        accept = _accepted(flask.request.accept_mimetypes, service.serving.accept_type)
        return response(*service.ask(body, flask.request.mimetype, accept, headers.get(ENCODING, "")), accept)

    @app.post(f"{INNER}<path:which>")
    def as_tensorflow_serving(which: str) -> Any:
        """Answer the user's code, which may ask the model at the address that TensorFlow Serving would have."""
        model = service.loaded
        if which not in (f"{model.name}:predict", f"{model.name}/versions/{model.version}:predict"):
            raise Declined(f"there is no {INNER}{which[:100]}; wanted {INNER}{model.name}:predict", 404)
        return response(*service.ask(flask.request.get_data(), encoding=flask.request.headers.get(ENCODING, "")))

    return app


def _accepted(asked: Any, default: str) -> str:
    """Return the type of ours that the Accept header takes; the default without a header, or if it takes anything."""
    asked = type(asked)([(kind.partition(";")[0], quality) for kind, quality in asked])  # without a charset
    kind = default if not asked or asked.best == "*/*" else asked.best_match(ACCEPTED)
    if kind not in ACCEPTED:
        raise Declined(f"Accept is {str(kind or asked)[:100]!r}; wanted {JSON}, {LINES[0]} or text/csv", 406)
    return str(kind)


def _check_attributes(text: str, model: ServedModel) -> None:
    """Refuse attributes that AWS's containers support and this one does not."""
    found = dict(re.findall(r"(?<![a-z-])(tfs-[a-z-]+)=([^,]+)", text))  # in one pass, since the client writes the text
    for key, ours in (("tfs-model-name", model.name), ("tfs-model-version", model.version), ("tfs-method", "predict")):
        if found.get(key, ours).strip() != ours:
            raise Declined(f"{ATTRIBUTES} has {key}={found[key][:100]}; wanted {ours}, the only one here", 404)
