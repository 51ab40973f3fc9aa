"""Answer what does not need the model, above all /ping, and hand all other requests to the process that has it."""

import json
from collections.abc import Callable, Iterable
from typing import Any

from entrypoint.serving.config import Serving
from entrypoint.serving.workers import JSON, Answer, Workers, error

_JSON = [["Content-Type", JSON]]


class Front:
    """A WSGI application. /ping is answered without Python's lock of the model's process, whatever that one does."""

    def __init__(self, serving: Serving, workers: Workers) -> None:
        self.serving, self._workers = serving, workers

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        status, headers, body = self._answer(environ)
        start_response(status, [(name, value) for name, value in headers])
        return [body]

    def _answer(self, environ: dict[str, Any]) -> Answer:
        if environ["REQUEST_METHOD"] in ("GET", "HEAD"):
            if environ["PATH_INFO"] == "/ping":
                why = self._workers.unwell()
                return error(503, why) if why else ("200 OK", _JSON, b"")
            if environ["PATH_INFO"] == "/execution-parameters":
                return "200 OK", _JSON, json.dumps(dict(self.serving.execution)).encode()
        return self._workers.ask(environ)
