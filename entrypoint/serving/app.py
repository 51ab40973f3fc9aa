"""Make the Flask application: the routes that SageMaker calls, and the model's address as in TensorFlow Serving."""

import json
import logging
import re
from typing import Any

from entrypoint.serving.answer import ACCEPTED, write
from entrypoint.serving.config import Serving
from entrypoint.serving.model import Model, Refused
from entrypoint.serving.packed import unpacked
from entrypoint.serving.request import JSON, LINES, read
from entrypoint.serving.user_code import ATTRIBUTES, UserCode

ENCODING = "Content-Encoding"
INVOCATIONS = "/invocations"
INNER = "/v1/models/"
LOOPBACK = "127.0.0.1"

log = logging.getLogger("serve")


class Service:
    """Answer requests by the model, and the user's code around it. Both are None until they are loaded."""

    def __init__(self, serving: Serving) -> None:
        self.serving = serving
        self.model: Model | None = None
        self.code: UserCode | None = None

    def ask(self, body: bytes, content_type: str = JSON, accept: str = JSON, encoding: str = "") -> bytes:
        """Return the model's answer. Raise Refused if the request is at fault."""
        assert self.model is not None
        question = read(unpacked(body, encoding, self.serving.max_payload), content_type, self.model.signatures)
        return write(self.model.predict(question.signature.name, question.inputs), question, accept)


def make_app(service: Service) -> Any:
    """Return the application. It answers 503 until the service is ready."""
    import flask
    from werkzeug.exceptions import HTTPException

    app = flask.Flask("serve", static_folder=None)

    def refuse(why: str, status: int) -> Any:
        return {"error": why}, status

    @app.errorhandler(Refused)
    def refused(error: Refused) -> Any:
        if error.status >= 500:
            log.error("%s", error)
        return refuse(str(error), error.status)

    @app.errorhandler(HTTPException)
    def no_such_thing(error: HTTPException) -> Any:
        there = f"GET /ping, POST {INVOCATIONS}, GET /execution-parameters"
        response: Any = error.get_response()  # keeps the headers, such as Allow
        why = f"{flask.request.method} {flask.request.path[:100]}: {error.name}; there are {there}"
        response.data, response.content_type = flask.json.dumps({"error": why}), JSON
        return response

    @app.errorhandler(Exception)
    def our_fault(error: Exception) -> Any:
        """Answer for a fault of ours, or of the model: one line for the client, everything for the log."""
        log.exception("%s %s failed", flask.request.method, flask.request.path)
        return refuse(_fault(error), 500)

    @app.get("/ping")
    def ping() -> Any:
        return ("", 200) if service.model is not None else refuse("the model is still being loaded", 503)

    @app.get("/execution-parameters")
    def execution_parameters() -> Any:
        return dict(service.serving.execution)

    @app.post(INVOCATIONS)
    def invocations() -> Any:
        model, headers = _ready(service), flask.request.headers
        _check_attributes(headers.get(ATTRIBUTES, ""), model)
        if service.code is not None:
            uri = f"http://{LOOPBACK}:{service.serving.port}{INNER}{model.name}:predict"
            body, kind = service.code.answer(flask.request.get_data(), headers, model, uri, inner_ask)
            return flask.Response(body, content_type=kind)
        accept = _accepted(flask.request.accept_mimetypes, service.serving.accept_type)
        kind = flask.request.mimetype
        answer = service.ask(flask.request.get_data(), kind, accept, headers.get(ENCODING, ""))
        return flask.Response(answer, content_type=accept)

    def inner_ask(body: bytes, encoding: str = "") -> tuple[int, bytes]:
        try:
            return 200, service.ask(body, encoding=encoding)
        except Refused as error:
            return error.status, flask.json.dumps({"error": str(error)}).encode()
        except Exception as error:  # the user's code gets it as an answer, too
            log.exception("the model failed")
            return 500, flask.json.dumps({"error": _fault(error)}).encode()

    @app.post(f"{INNER}<path:which>")
    def as_tensorflow_serving(which: str) -> Any:
        """Answer the user's code, which may ask the model at the address that TensorFlow Serving would have."""
        model = _ready(service)
        if which not in (f"{model.name}:predict", f"{model.name}/versions/{model.version}:predict"):
            raise Refused(f"there is no {INNER}{which[:100]}; wanted {INNER}{model.name}:predict", 404)
        status, body = inner_ask(flask.request.get_data(), flask.request.headers.get(ENCODING, ""))
        return flask.Response(body, status=status, content_type=JSON)

    answer = app.wsgi_app

    def answer_whatever_comes(environ: Any, start_response: Any) -> Any:
        """Answer even if an error is no Exception: Flask and waitress ignore it, and the client would wait for ever."""
        try:
            return answer(environ, start_response)
        except Exception:
            raise
        except BaseException as error:
            log.exception("%s %s failed", environ["REQUEST_METHOD"], environ["PATH_INFO"])
            response = flask.Response(json.dumps({"error": _fault(error)}), 500, content_type=JSON)
            return response(environ, start_response)

    app.wsgi_app = answer_whatever_comes  # type: ignore[method-assign]
    return app


def _fault(error: BaseException) -> str:
    return f"the model failed: {type(error).__name__}; see the container's log"


def _ready(service: Service) -> Model:
    if service.model is None:
        raise Refused("the model is still being loaded", 503)
    return service.model


def _accepted(asked: Any, default: str) -> str:
    """Return which of our types the Accept header takes; the default if there is none, or it takes anything."""
    asked = type(asked)([(kind.partition(";")[0], quality) for kind, quality in asked])  # without a charset
    kind = default if not asked or asked.best == "*/*" else asked.best_match(ACCEPTED)
    if kind not in ACCEPTED:
        raise Refused(f"Accept is {str(kind or asked)[:100]!r}; wanted {JSON}, {LINES[0]} or text/csv", 406)
    return str(kind)


def _check_attributes(text: str, model: Model) -> None:
    """Refuse attributes that AWS's containers know, and that cannot be fulfilled here."""
    found = dict(re.findall(r"(?<![a-z-])(tfs-[a-z-]+)=([^,]+)", text))  # in one pass, since the client writes the text
    for key, ours in (("tfs-model-name", model.name), ("tfs-model-version", model.version), ("tfs-method", "predict")):
        if found.get(key, ours).strip() != ours:
            raise Refused(f"{ATTRIBUTES} has {key}={found[key][:100]}; wanted {ours}, the only one here", 404)
