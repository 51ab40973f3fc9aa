"""Serve SageMaker's protocol, JSON 1.1 over HTTP, and check requests by botocore's model of the service."""

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from typing import Any

import botocore.session
from botocore.model import Shape
from werkzeug.serving import make_server
from werkzeug.wrappers import Request, Response

MODEL = botocore.session.get_session().get_service_model("sagemaker")


class ApiError(Exception):
    """An error that the API answers, with code and message."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def hit(patterns: list[str], name: str) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)


def invalid(message: str) -> ApiError:
    return ApiError("ValidationException", message)


def check(operation: str, request: dict[str, Any]) -> None:
    """Raise ApiError if the request breaks a constraint of the service's model that boto3 does not check."""
    shape = MODEL.operation_model(operation).input_shape
    if broken := list(_broken(request, shape, "")):
        raise invalid(f"{len(broken)} validation errors detected: {'; '.join(broken)}")


def _broken(value: Any, shape: Shape, path: str) -> Iterator[str]:
    """Yield the constraints that botocore leaves to the service: patterns, maxima and enums."""
    if shape.type_name == "structure":
        for name, each in value.items():
            yield from _broken(each, shape.members[name], f"{path}.{name[0].lower()}{name[1:]}".lstrip("."))
        return
    if shape.type_name == "list":
        for number, each in enumerate(value, 1):
            yield from _broken(each, shape.member, f"{path}.{number}.member")
    elif shape.type_name == "map":
        for key, each in value.items():
            yield from _broken(key, shape.key, path)
            yield from _broken(each, shape.value, f"{path}.{key}.member")
    said = f"Value '{value}' at '{path}' failed to satisfy constraint: Member must "
    limits = shape.metadata
    if shape.type_name in ("integer", "long", "float", "double"):
        if value > limits.get("max", value):
            yield f"{said}have value less than or equal to {limits['max']}"
        return
    if shape.type_name in ("string", "list", "map") and len(value) > limits.get("max", len(value)):
        yield f"{said}have length less than or equal to {limits['max']}"
    if shape.type_name != "string":
        return
    if limits.get("enum") and value not in limits["enum"]:
        yield f"{said}satisfy enum value set: [{', '.join(limits['enum'])}]"
    try:
        if "pattern" in limits and not re.fullmatch(limits["pattern"], value, re.DOTALL):
            yield f"{said}satisfy regular expression pattern: {limits['pattern']}"
    except re.error:  # a class of characters that only Java knows
        pass


# To IAM, which moto has in parts only: SDK v3 asks it what the role may do, and goes on where it must not ask.
DENIED = b"<ErrorResponse><Error><Code>AccessDenied</Code><Message>not authorized</Message></Error></ErrorResponse>"


@contextmanager
def serving(answer: Callable[[str, dict[str, Any]], dict[str, Any]]) -> Iterator[str]:
    """Serve `answer(target, request)` on loopback during the block; yield the server's URL."""

    @Request.application
    def application(request: Request) -> Response:
        if request.mimetype == "application/x-www-form-urlencoded":
            return Response(DENIED, 403, mimetype="text/xml")
        status, reply = 200, {}
        try:
            reply = answer(request.headers.get("X-Amz-Target", ""), json.loads(request.get_data() or b"{}"))
        except ApiError as error:
            status, reply = 400, {"__type": error.code, "message": str(error)}
        except Exception as error:
            status, reply = 500, {"__type": "InternalFailure", "message": repr(error)}
        return Response(json.dumps(reply), status, mimetype="application/x-amz-json-1.1")

    server = make_server("127.0.0.1", 0, application, threaded=True)
    thread = threading.Thread(target=server.serve_forever, name="SageMaker's API")
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
