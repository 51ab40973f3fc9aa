"""Speak SageMaker's protocol, JSON 1.1 over HTTP, and hold requests against botocore's model of the service."""

import json
import re
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import botocore.session
from botocore.model import Shape

MODEL = botocore.session.get_session().get_service_model("sagemaker")


class ApiError(Exception):
    """An answer with an error: its code and its message."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def hit(patterns: list[str], name: str) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)


def invalid(message: str) -> ApiError:
    return ApiError("ValidationException", message)


def check(operation: str, request: dict[str, Any]) -> None:
    """Raise ApiError if the request breaks the service's model, beyond what boto3 has checked before it sent it."""
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

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 60  # seconds; ends the threads of clients that keep a connection

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if "x-www-form-urlencoded" in self.headers.get("Content-Type", ""):
                self._send(403, "text/xml", DENIED)
                return
            status, reply = 200, {}
            try:
                reply = answer(self.headers.get("X-Amz-Target", ""), json.loads(body or b"{}"))
            except ApiError as error:
                status, reply = 400, {"__type": error.code, "message": str(error)}
            except Exception as error:
                status, reply = 500, {"__type": "InternalFailure", "message": repr(error)}
            self._send(status, "application/x-amz-json-1.1", json.dumps(reply).encode())

        def _send(self, status: int, kind: str, text: bytes) -> None:
            self.send_response(status)
            self.send_header("x-amzn-RequestId", str(uuid.uuid4()))
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, name="SageMaker's API")
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
