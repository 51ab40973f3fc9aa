"""Run the user's `inference.py`, as SageMaker's TensorFlow containers do.

    def input_handler(data, context): ...      request -> the body of a request to TensorFlow Serving
    def output_handler(response, context): ... its response -> (body, content type)

or one `handler(data, context)` for both, which asks the model itself, at `context.rest_uri`.
"""

import importlib.util
import io
import json
import subprocess
import sys
import traceback
from collections import namedtuple
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from entrypoint.base.errors import CodeError
from entrypoint.serving.served_model import Declined, ServedModel
from entrypoint.serving.serving_config import Serving

Context = namedtuple(
    "Context",
    "model_name, model_version, method, rest_uri, grpc_port, channel, custom_attributes, request_content_type, "
    "accept_header, content_length",
)
Ask = Callable[[bytes], tuple[int, bytes]]  # a request to the model -> (status, body)

INSTALLER = Path(__file__).parents[1] / "programs" / "prepare" / "installer.py"
ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes"


def load_user_code(serving: Serving) -> "InferenceCode | None":
    """Return the user's handlers, if there are any, with their requirements installed.

    Raise CodeError if they are unusable.
    """
    folders = (serving.model / "code", serving.base / "code")
    program = serving.program or "inference.py"
    folder = next((folder for folder in folders if (folder / program).is_file()), None)
    if folder is None:
        if serving.program:
            raise CodeError(
                f"SAGEMAKER_PROGRAM is {program!r}, which is neither in {folders[0]} nor in {folders[1]}; "
                "wanted it in the model: beside entry_point give source_dir, too, so that the SDK repacks the model"
            )
        return None
    _install(folder)
    sys.path[:0] = [str(folder), *([str(folder / "lib")] if (folder / "lib").is_dir() else [])]
    path = folder / program
    spec = importlib.util.spec_from_file_location("inference", path)
    if spec is None or spec.loader is None:
        raise CodeError(f"{path} is no Python module; wanted a file that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["inference"] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:  # for example sys.exit()
        traceback.print_exc()
        raise CodeError(f"{path} cannot be imported: {_what(error)}") from error
    handlers = {name: getattr(module, name, None) for name in ("handler", "input_handler", "output_handler")}
    if not (handlers["handler"] or (handlers["input_handler"] and handlers["output_handler"])):
        there = [name for name, handler in handlers.items() if handler]
        found = f"{there[0]} alone" if there else "no handlers"
        raise CodeError(f"{path} has {found}; wanted input_handler and output_handler, or handler")
    return InferenceCode(path, handlers, serving.accept)


def _install(folder: Path) -> None:
    requirements = folder / "requirements.txt"
    if not requirements.is_file():
        return
    if (folder / "lib").is_dir():
        print(f"serve: {requirements} is not installed: {folder / 'lib'} has what the code needs", flush=True)
        return
    installed = subprocess.run([sys.executable, str(INSTALLER), str(folder)], stdout=subprocess.PIPE, text=True)
    print(installed.stdout, end="", flush=True)
    if installed.returncode:
        raise CodeError((installed.stdout.strip().splitlines() or [f"{requirements} cannot be installed"])[-1])


class InferenceCode:
    """Call the user's functions. What they raise is the user's fault, not the client's: status 500."""

    def __init__(self, path: Path, handlers: Mapping[str, Any], accept: str) -> None:
        self.path, self._handlers, self._accept = path, handlers, accept

    def answer(self, body: bytes, headers: Any, model: ServedModel, rest_uri: str, ask: Ask) -> tuple[bytes, str]:
        context = Context(
            model.name, model.version, "predict", rest_uri, None, None, headers.get(ATTRIBUTES),
            headers.get("Content-Type") or "application/json", headers.get("Accept") or self._accept, len(body),
        )  # fmt: skip
        try:
            if self._handlers["handler"]:
                return _checked(self._handlers["handler"](io.BytesIO(body), context))
            asked = self._handlers["input_handler"](io.BytesIO(body), context)
            status, content = ask(_to_bytes(asked))
            response = SimpleNamespace(  # as of the library requests
                status_code=status,
                ok=status < 400,
                content=content,
                text=content.decode(),
                encoding="utf-8",
                headers={"Content-Type": "application/json"},
                json=lambda: json.loads(content),
            )
            return _checked(self._handlers["output_handler"](response, context))
        except BaseException as error:  # even sys.exit(): otherwise the request would never be answered
            traceback.print_exc()
            raise Declined(f"{self.path.name}: {_what(error)}", 500) from error


def _to_bytes(value: Any) -> bytes:
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    return (value if isinstance(value, str) else json.dumps(value)).encode()


def _checked(value: Any) -> tuple[bytes, str]:
    if not isinstance(value, tuple) or len(value) != 2:
        raise TypeError(f"the handler returned {type(value).__name__}; wanted (body, content type)")
    kind = str(value[1])
    if not (kind.isascii() and kind.isprintable()):
        raise ValueError(f"the handler returned the content type {kind[:100]!r}; wanted one that a header can hold")
    return _to_bytes(value[0]), kind


def _what(error: BaseException) -> str:
    try:
        text = " ".join(str(error).split())
    except Exception as another:  # of the exception's own __str__
        text = f"(its text cannot be had: {type(another).__name__})"
    return f"{type(error).__name__}: {text}"[:500] if text else type(error).__name__
