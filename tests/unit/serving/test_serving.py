"""Test `serve`: payloads, refusals, and where it finds models. The model in these tests only adds."""

import gzip
import http.client
import io
import json
import socket
import subprocess
import sys
import threading
import tracemalloc
import zlib
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
from builders import write_files
from growth import grows_no_faster_than_its_input
from ports import unused_port
from waiting import eventually
from waitress import wasyncore
from waitress.adjustments import Adjustments
from werkzeug.test import Client

from entrypoint.base.errors import CodeError, ConfigError, ExitCode
from entrypoint.serving.__main__ import _answer
from entrypoint.serving.app import Memory, Service, cost, make_app
from entrypoint.serving.bodies import read, unpacked
from entrypoint.serving.front import Front, ModelThreads, connect
from entrypoint.serving.http_server import Server, _RequestParser
from entrypoint.serving.model_process import _listen_to_handlers, work
from entrypoint.serving.served_model import Declined, Signature, Tensor
from entrypoint.serving.serving_config import Serving, find_model, free_memory, read_serving
from entrypoint.serving.user_code import load_user_code

FLOAT, INT, TEXT = np.dtype(np.float32), np.dtype(np.int64), np.dtype(object)
ONE = Signature("one", (Tensor("x", FLOAT, (None, 2)),), (Tensor("y", FLOAT, (None,)),))
TWO = Signature(
    "two",
    (Tensor("ids", INT, (None, 3)), Tensor("weights", FLOAT, (None, 3))),
    (Tensor("sum", FLOAT, (None,)), Tensor("rows", INT, (None,))),
)
WORDS = Signature("words", (Tensor("examples", TEXT, (None,)),), (Tensor("upper", TEXT, (None,)),))
IMAGE = Signature("image", (Tensor("pixels", FLOAT, (None, 2, 2, 1)),), (Tensor("p", FLOAT, (None, 2)),))


class Adds:
    """A `ServedModel` in numpy that adds its inputs."""

    name, version = "adds", "3"

    def __init__(self, *signatures: Signature) -> None:
        self.signatures = {s.name: s for s in signatures}

    def predict(self, signature, inputs):
        if signature == "one":
            if np.isneginf(inputs["x"]).any():
                raise ZeroDivisionError("a secret of the model")
            return {"y": inputs["x"].sum(axis=1)}
        if signature == "two":
            return {"sum": (inputs["ids"] * inputs["weights"]).sum(axis=1), "rows": inputs["ids"][:, 0]}
        if signature == "image":
            return {"p": inputs["pixels"].reshape(-1, 4)[:, :2]}
        return {"upper": np.array([word.upper() for word in inputs["examples"]], dtype=object)}


class Waits(Adds):
    """A model that answers once its gate is open."""

    def __init__(self, *signatures: Signature) -> None:
        super().__init__(*signatures)
        self.reached, self.gate = threading.Event(), threading.Event()

    def predict(self, signature, inputs):
        self.reached.set()
        self.gate.wait()
        return super().predict(signature, inputs)


def app_of(model: Adds, base: str | Path = "/nowhere", **environment: str):
    """Return the application around a model, with the user's code from the base folder."""
    service = Service(read_serving({"SAGEMAKER_BASE_DIR": str(base), **environment}))
    service.model, service.code = model, load_user_code(service.serving)
    return make_app(service)


def client(signature: Signature, base: str | Path = "/nowhere", **environment: str):
    return app_of(Adds(signature), base, **environment).test_client()


def threads_of(count: int, seconds: float) -> tuple[ModelThreads, list]:
    """Return threads of a loaded model and the other ends of their connections."""
    ours, theirs = connect(count, seconds)
    workers = ModelThreads(ours, seconds)
    workers.is_loaded = True
    return workers, theirs


def front_of(model: Adds, base: str | Path = "/nowhere", **environment: str) -> tuple[Client, ModelThreads]:
    """Return a client of the HTTP front, with the model's threads in the same process."""
    serving, application = read_serving(environment), app_of(model, base, **environment)
    workers, theirs = threads_of(serving.threads, serving.timeout)
    for connection in theirs:
        threading.Thread(target=work, args=(connection, application, {}), daemon=True).start()
    return Client(Front(serving, workers)), workers


def answers(signature: Signature, headers: dict[str, str], body) -> list:
    """Return the answers at both addresses, or at SageMaker's alone if a header names a type."""
    app = client(signature, SAGEMAKER_MAX_PAYLOAD_IN_MB="1")
    data = body if isinstance(body, str | bytes) else json.dumps(body)
    addresses = ["/invocations", *["/v1/models/adds:predict"] * (headers.keys() <= {"Content-Encoding"})]
    return [app.post(address, data=data, headers=headers) for address in addresses]


# ---- requests and answers

JSON, LINES, CSV = ({"Content-Type": kind} for kind in ("application/json", "application/jsonlines", "text/csv"))
ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes"
PACKED = gzip.compress(b'{"instances": [[1, 2], [3, 4]]}', mtime=0)
TWO_MEMBERS = gzip.compress(b'{"instances":') + gzip.compress(b"[[1, 2]]}")
ANSWERED = [
    # signature, headers, body, answer
    (ONE, {}, {"instances": [[1, 2], [3, 4]]}, {"predictions": [3, 7]}),
    (ONE, JSON, {"instances": [{"x": [1, 2]}]}, {"predictions": [3]}),
    (ONE, {}, {"signature_name": "one", "inputs": [[1, 2.5]]}, {"outputs": [3.5]}),
    (ONE, {}, {"inputs": {"x": [[1, 2], [3, 4]]}}, {"outputs": [3, 7]}),
    (ONE, {}, [[1, 2], [3, 4]], {"predictions": [3, 7]}),
    (ONE, {}, [1, 2], {"predictions": [3]}),
    (ONE, {}, {"x": [1, 2]}, {"predictions": [3]}),
    (ONE, {}, [{"x": [1, 2]}, {"x": [0, 2]}], {"predictions": [3, 2]}),
    (ONE, {}, "[1, 2]\n[3, 4]\n", {"predictions": [3, 7]}),
    (ONE, {}, '{"instances": [[NaN, 1], [Infinity, 1]]}', b'{"predictions": [NaN, Infinity]}'),
    (ONE, {"Content-Type": "application/json; charset=utf-8"}, "[1, 2]", {"predictions": [3]}),
    (TWO, {}, {"instances": [{"ids": [1, 2, 3], "weights": [1, 0, 1]}]}, {"predictions": [{"sum": 4, "rows": 1}]}),
    (TWO, {}, {"inputs": {"ids": [[1, 2, 3]], "weights": [[1, 0, 0.5]]}}, {"outputs": {"sum": [2.5], "rows": [1]}}),
    (TWO, {}, {"ids": [1.0, 2.0, 3.0], "weights": [1, 0, 1]}, {"predictions": [{"sum": 4, "rows": 1}]}),
    (WORDS, {}, {"instances": [{"b64": "aGk="}, "so"]}, {"predictions": ["HI", "SO"]}),
    (WORDS, {}, {"inputs": {"examples": ["é"]}}, {"outputs": ["é"]}),
    (WORDS, {}, {"instances": [{"b64": "/w=="}]}, {"predictions": [{"b64": "/w=="}]}),
    (IMAGE, {}, [[[[1], [2]], [[3], [4]]]], {"predictions": [[1, 2]]}),
    (IMAGE, {}, [[[1], [2]], [[3], [4]]], {"predictions": [[1, 2]]}),
    (ONE, LINES, "[1, 2]\n\n[3, 4]\r\n", {"predictions": [3, 7]}),
    (ONE, LINES, '{"instances": [[1, 2]]}', {"predictions": [3]}),
    (TWO, {"Content-Type": "application/jsons"}, '{"ids": [1, 2, 3], "weights": [0, 0, 1]}',
     {"predictions": [{"sum": 3, "rows": 1}]}),
    (ONE, CSV, "1,2\n3,4\n", {"predictions": [3, 7]}),
    (ONE, CSV, "\ufeff1, 2.5", {"predictions": [3.5]}),
    (IMAGE, CSV, "1,2,3,4\r\n5,6,7,8\r\n", {"predictions": [[1, 2], [5, 6]]}),
    (WORDS, CSV, '"a,b"\nc\n', {"predictions": ["A,B", "C"]}),
    (WORDS, CSV, "x" * 200_000, {"predictions": ["X" * 200_000]}),
    (ONE, {"Accept": "*/*"}, [[1, 2], [3, 4]], b'{"predictions": [3.0, 7.0]}'),
    (ONE, {"Accept": "text/csv"}, [[1, 2], [3, 4]], b"3.0\n7.0\n"),
    (IMAGE, {"Accept": "text/csv"}, [[[[1], [2]], [[3], [4]]]], b"1.0,2.0\n"),
    (ONE, {"Accept": "application/jsonlines"}, [[1, 2], [3, 4]], b"3.0\n7.0\n"),
    (ONE, {"Accept": "text/html, application/json;q=0.5"}, [[1, 2], [3, 4]], {"predictions": [3, 7]}),
    (TWO, {"Accept": "application/json; charset=utf-8"}, {"ids": [1, 2, 3], "weights": [0, 0, 1]},
     {"predictions": [{"sum": 3, "rows": 1}]}),
    (ONE, {"Content-Encoding": "gzip"}, PACKED, {"predictions": [3, 7]}),
    (ONE, {}, PACKED, {"predictions": [3, 7]}),
    (ONE, {"Content-Encoding": "x-gzip"}, TWO_MEMBERS, {"predictions": [3]}),
    (ONE, {"Content-Encoding": "Deflate"}, zlib.compress(b"[[1, 2]]"), {"predictions": [3]}),
    (ONE, {"Content-Encoding": "identity"}, b"[[1, 2]]", {"predictions": [3]}),
    (ONE, {ATTRIBUTES: "tfs-model-name=adds,tfs-model-version=3,tfs-method=predict"}, [1, 2], {"predictions": [3]}),
]  # fmt: skip


@pytest.mark.parametrize(("signature", "headers", "body", "answer"), ANSWERED, ids=range(len(ANSWERED)))
def test_request_is_answered_as_by_tensorflow_serving(signature, headers, body, answer):
    asked_for = headers.get("Accept")
    kind = asked_for if asked_for in ("text/csv", "application/jsonlines") else "application/json"
    for response in answers(signature, headers, body):
        assert (response.status_code, response.content_type) == (200, kind)
        assert (response.data if isinstance(answer, bytes) else response.json) == answer


REFUSED = [
    # signature, headers, body, status, what the error contains
    (ONE, {}, "", 400, "the body is empty"),
    (ONE, {}, "{", 400, "the body is not JSON: Expecting property name"),
    (ONE, {}, b"\xff", 400, "the body is not UTF-8"),
    (ONE, {}, "[" * 100_000, 400, "nested too deep"),
    (ONE, {}, '{"instances": ' + "[" * 600 + "]" * 600 + "}", 400, "wanted x: float32 [n, 2]"),
    (ONE, {}, {"rows": 1}, 400, 'neither "instances" (rows) nor "inputs" (columns); one wants x: float32 [n, 2]'),
    (ONE, {}, {"instances": [], "inputs": []}, 400, "wanted one of them"),
    (ONE, {}, {"instances": []}, 400, "the rows are an empty list"),
    (ONE, {}, {"instances": 3}, 400, "the rows are no list"),
    (ONE, {}, {"instances": [[1, 2, 3]]}, 400, "x has shape [1, 3]; wanted x: float32 [n, 2]"),
    (ONE, {}, {"instances": [[1, 2], [3]]}, 400, "x holds lists of different lengths; wanted x: float32 [n, 2]"),
    (ONE, {}, {"instances": [[1, "2"]]}, 400, "x holds text; wanted x: float32 [n, 2]"),
    (ONE, {}, {"instances": [[1, None]]}, 400, "x holds null"),
    (ONE, {}, {"instances": [[True, False]]}, 400, "x holds true or false"),
    (ONE, {}, {"instances": [[1, 2], [True, 1.5]]}, 400, "x holds true or false"),
    (TWO, {}, {"inputs": {"ids": [[1, 2, False]], "weights": [[1, 2, 3]]}}, 400, "ids holds true or false"),
    (ONE, {}, {"instances": [[1, {"b64": "aGk="}]]}, 400, "x holds an object"),
    (ONE, {}, {"instances": [[1, 1e300]]}, 400, "x holds 1e+300, which is no float32"),
    (ONE, {}, {"instances": [[1, 10**400]]}, 400, "x holds a whole number too large"),
    (ONE, {}, '{"instances": [[1, ' + "9" * 5000 + "]]}", 400, "the body is not JSON"),
    (ONE, {}, {"instances": [{"x": [1, 2]}, [1, 2]]}, 400, "row 1 is no object, others are"),
    (ONE, {}, {"instances": [{"z": [1, 2]}]}, 400, "row 0 lacks x; one wants"),
    (ONE, {}, {"signature_name": "other", "instances": [[1, 2]]}, 400,
     "no signature 'other'; wanted signature_name to be one"),
    (ONE, {}, {"signature_name": ["one"], "instances": [[1, 2]]}, 400, "no signature"),
    (TWO, {}, {"instances": [[1, 2, 3]]}, 400, "the rows do not name their inputs; wanted objects with ids, weights"),
    (TWO, {}, {"inputs": [[1, 2, 3]]}, 400, '"inputs" does not name its inputs'),
    (TWO, {}, {"inputs": {"ids": [[1, 2, 3]]}}, 400,
     '"inputs" lacks weights; two wants ids: int64 [n, 3], weights: float32'),
    (TWO, {}, {"instances": [{"ids": [1, 2, 3], "weights": [1, 2, 3], "y": 1}]}, 400,
     "row 0 has y, which the model does not"),
    (TWO, {}, {"instances": [{"ids": [1, 2, 3.5], "weights": [1, 2, 3]}]}, 400, "ids holds 3.5, which is no int64"),
    (TWO, {}, {"instances": [{"ids": [1, 2, 2**63], "weights": [1, 2, 3]}]}, 400, "which is no int64"),
    (TWO, {}, {"instances": [{"ids": [2**53 + 1, 1.0, 2], "weights": [1, 2, 3]}]}, 400,
     "as a float may have lost digits"),
    (WORDS, {}, {"instances": [3]}, 400,
     'examples holds a whole number; wanted examples: text [n], as "text" or {"b64"'),
    (WORDS, {}, {"instances": [{"b64": "%"}]}, 400, "examples holds a b64 that is no base64"),
    (WORDS, {}, {"instances": [{"b64": "é"}]}, 400, "examples holds a b64 that is no base64"),
    (WORDS, {}, {"instances": [["a"], ["a", "b"]]}, 400, "examples holds lists of different lengths"),
    (ONE, LINES, '[1, 2]\n{"x": [3, 4]}', 400, "row 0 is no object"),
    (ONE, LINES, "[1, 2]\n[", 400, "line 2 is not JSON"),
    (ONE, CSV, "", 400, "the body is empty"),
    (ONE, CSV, "1,2\n3", 400, "row 2 has 1 columns, row 1 has 2"),
    (ONE, CSV, "a,b\n1,2", 400, "row 1, column 1 is 'a', which is no number; wanted x: float32 [n, 2]"),
    (ONE, CSV, "1,2,3", 400, "x has shape [1, 3]; wanted"),
    (IMAGE, CSV, "1,2,3", 400, "pixels has shape [1, 3]; wanted pixels: float32 [n, 2, 2, 1]"),
    (TWO, CSV, "1,2,3", 400, "text/csv cannot name several inputs; wanted application/json; two wants ids"),
    (ONE, {"Content-Type": "application/x-npy"}, "x", 415, "wanted application/json"),
    (ONE, {"Accept": "text/html"}, [[1, 2]], 406,
     "Accept is 'text/html'; wanted application/json, application/jsonlines or text/csv"),
    (TWO, {"Accept": "text/csv"}, {"ids": [1, 2, 3], "weights": [0, 0, 1]}, 406,
     "text/csv cannot name several outputs (sum, rows); wanted Accept: application/json"),
    (ONE, {"Accept": "application/jsonlines"}, {"inputs": [[1, 2]]}, 406, "wanted Accept: application/json"),
    (ONE, {}, PACKED[:-9], 400, "the body is gzip and ends too early"),
    (ONE, {"Content-Encoding": "gzip"}, b"[[1, 2]]", 400, "the body cannot be expanded as gzip: "),
    (ONE, {"Content-Encoding": "br"}, b"[[1, 2]]", 415, "Content-Encoding is 'br'; wanted gzip, deflate or none"),
    (ONE, {}, gzip.compress(bytes(2 << 20), mtime=0), 413, "the body is larger than 1 MB when it is expanded"),
    (ONE, {ATTRIBUTES: "tfs-model-name=other,a=b"}, [1, 2], 404, "has tfs-model-name=other; wanted adds"),
]  # fmt: skip


@pytest.mark.parametrize(("signature", "headers", "body", "status", "complaint"), REFUSED, ids=range(len(REFUSED)))
def test_bad_request_is_refused_with_the_expected_form(signature, headers, body, status, complaint):
    for response in answers(signature, headers, body):
        assert response.status_code == status and complaint in response.json["error"]
        assert "\n" not in response.json["error"] and len(response.json["error"]) < 600


def test_model_error_gives_500_without_traceback(caplog):
    for response in answers(ONE, {}, '{"instances": [[-Infinity, 1]]}'):
        assert response.status_code == 500
        assert "ZeroDivisionError" in response.json["error"] and "secret" not in response.json["error"]
    assert "a secret of the model" in caplog.text


def test_requests_for_unknown_paths_are_refused_in_json():
    app = client(ONE)
    missing, wrong = app.get("/nothing"), app.get("/invocations")
    assert missing.status_code == 404 and "POST /invocations" in missing.json["error"]
    assert wrong.status_code == 405 and "POST" in wrong.headers["Allow"] and wrong.json["error"]
    assert app.post("/v1/models/other:predict", data='{"instances": [[1, 2]]}').status_code == 404
    assert app.post("/v1/models/adds/versions/3:predict", data='{"instances": 1}').status_code == 400


@pytest.mark.parametrize(("dtype", "values", "fit"), [
    (np.uint8, [255], True), (np.uint8, [256], False), (np.uint8, [-1], False), (np.int8, [-128], True),
    (np.uint64, [2**63], True), (np.uint64, [-1], False), (np.int32, [2**31], False), (np.float16, [70000], False),
    (np.bool_, [True], True), (np.bool_, [1], False), (np.int64, [float("nan")], False),
    (np.float64, [float("nan")], True), (np.int64, [2**53 + 1, 2**62 + 1], True), (np.uint64, [2**63 + 5, 5], True),
])  # fmt: skip
def test_json_numbers_keep_all_digits_or_are_refused(dtype, values, fit):
    signatures = {"s": Signature("s", (Tensor("x", np.dtype(dtype), (None,)),), ())}
    body = json.dumps({"instances": values}).encode()
    if fit:
        array = read(body, "application/json", signatures).inputs["x"]
        assert array.dtype == dtype and str(array.tolist()) == str(values)
    else:
        with pytest.raises(Declined, match=f"wanted x: {np.dtype(dtype).name}"):
            read(body, "application/json", signatures)


def test_csv_integers_keep_all_digits_or_are_refused():
    ids = {"ids": Signature("ids", (Tensor("x", INT, (None,)),), ())}
    assert read(b"9007199254740993\n", "text/csv", ids).inputs["x"].tolist() == [9007199254740993]
    with pytest.raises(Declined, match=r"x holds 9007199254740992\.0, which as a float may have lost digits"):
        read(b"9007199254740993\n1.0\n", "text/csv", ids)


def test_default_signature_is_serving_default():
    default = Signature("serving_default", ONE.inputs, ONE.outputs)
    assert read(b"[1, 2]", "", {"two": TWO, default.name: default}).signature is default
    with pytest.raises(Declined, match="wanted signature_name to be two or one"):
        read(b"[1, 2]", "", {"two": TWO, "one": ONE})


def test_default_accept_type_is_configurable():
    for default, answer in (("text/csv", b"3.0\n"), ("application/json; charset=utf-8", b'{"predictions": [3.0]}')):
        app = client(ONE, SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT=default)
        assert app.post("/invocations", data="[1, 2]").data == answer


def test_empty_gzip_members_take_linear_time():
    member = gzip.compress(b"")
    grows_no_faster_than_its_input(lambda count: [*unpacked(member * count, "gzip")], 4000)


# ---- memory


@pytest.mark.parametrize(("signature", "kind", "row"), [
    (ONE, "", "[1, 2.5],"), (ONE, "", "[1,2],"), (ONE, "", "[[],0],"), (ONE, "", '{"x":[1.5,300]},'),
    (ONE, "", "[{},[]],"),
    (ONE, "", '["ab","cd"],'), (TWO, "", '{"ids":[1,2,3],"weights":[0,0,1]},'), (WORDS, "", '"ab",'),
    (WORDS, "", '{"b64":"aGk="},'), (ONE, "text/csv", "10,20.5\n"), (WORDS, "text/csv", '"a,b"\n'),
    (ONE, "application/jsonlines", "[1, 2]\n"), (ONE, "application/jsonlines", "[]\n"), (WORDS, "text/csv", "\u20ac\n"),
    (ONE, "", "[" + "1.5, " * 40 + "300],"),
    (ONE, "", "1,"), (ONE, "", "2.5,"), (ONE, "text/csv", "20.5," * 40 + "300\n"), (ONE, "text/csv", "1," * 40 + "1\n"),
    (WORDS, "text/csv", "10," * 40 + "1\n"),
])  # fmt: skip
@pytest.mark.parametrize("size", [3_000, 250_000])
def test_reading_a_body_stays_within_accounted_memory(signature, kind, row, size):
    text = row * (size // len(row))
    body = (f"[{text[:-1]}]" if text.endswith(",") else text).encode()
    tracemalloc.start()
    with suppress(Declined):
        read(body, kind, {signature.name: signature})
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < cost([body], len(body), kind == "text/csv") + (1 << 18)


def test_body_needing_too_much_memory_is_refused(monkeypatch):
    monkeypatch.setattr("entrypoint.serving.serving_config.free_memory", lambda: 1 << 30)
    app = client(ONE, SAGEMAKER_MAX_PAYLOAD_IN_MB="32")
    response = app.post("/invocations", data=(body := b"[[" + b"1," * 12_000_000 + b"1]]"))
    assert response.status_code == 413
    assert "may take 640 MB of memory; wanted 512 MB at most: send fewer values at once" in response.json["error"]
    with monkeypatch.context() as patch:  # much memory is no reason to expand so much
        patch.setattr("entrypoint.serving.serving_config.free_memory", lambda: 64 << 30)
        app = client(ONE, SAGEMAKER_MAX_PAYLOAD_IN_MB="32")
        bomb = app.post("/invocations", data=gzip.compress(body))
    assert bomb.status_code == 413 and "expands to what may take 640 MB to read" in bomb.json["error"]
    assert "MaxPayloadInMB" in response.json["error"] and "SAGEMAKER_MAX_PAYLOAD" not in response.json["error"]


@pytest.mark.parametrize("text", ["1,0,25\n", "0.5,1.2\n", "1\n", "[1,2]\n", '{"x":[1]}\n', "[1,2],"])
@pytest.mark.parametrize("payload", [6, 100])
def test_numeric_body_may_reach_the_payload_limit(monkeypatch, text, payload):
    monkeypatch.setattr("entrypoint.serving.serving_config.free_memory", lambda: 64 << 30)
    serving = read_serving({"SAGEMAKER_MAX_PAYLOAD_IN_MB": str(payload)})
    piece = text.encode() * 1000
    count = serving.max_payload // len(piece)
    assert cost([piece], len(piece), is_csv=not text.startswith(("[", "{"))) * count <= serving.memory


@pytest.mark.parametrize(("files", "free"), [
    ({}, 8000 << 10),
    ({"memory.max": "max\n", "memory.current": "5\n"}, 8000 << 10),
    ({"memory.max": "3000000\n", "memory.current": "1000000\n"}, 2_000_000),
    ({"memory/memory.limit_in_bytes": "3000000\n", "memory/memory.usage_in_bytes": "1000000\n"}, 2_000_000),
    ({"memory/memory.limit_in_bytes": f"{2**63 - 4096}\n", "memory/memory.usage_in_bytes": "9\n"}, 8000 << 10),
])  # fmt: skip
def test_free_memory_is_read_from_machine_or_container(tmp_path: Path, files, free):
    (tmp_path / "meminfo").write_text("MemTotal:       9000 kB\nMemAvailable:   8000 kB\n")
    (tmp_path / "memory").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert free_memory(tmp_path, tmp_path / "meminfo") == free


def test_request_waits_for_memory():
    memory, order = Memory(100), []

    def second() -> None:
        with memory.taken(60):
            order.append("second")

    with memory.taken(70) as reduce:
        other = threading.Thread(target=second)
        other.start()
        with memory.taken(30):
            order.append("small")
        order.append("reduced")
        reduce(40)
        other.join(60)
    assert order == ["small", "reduced", "second"]


def test_request_bodies_are_read_only_with_free_memory(monkeypatch):
    monkeypatch.setattr(Serving, "bodies", 300_000)
    body = b" " * 199_994 + b"[1, 2]"
    head = b"POST /invocations HTTP/1.1\r\nContent-Length: 200000\r\n\r\n"
    with running(Adds(ONE)) as port, connected(port) as first, connected(port) as second:
        first.sendall(head + body[:-1])
        assert invoke(port, "[1, 2]")[0] == 200  # after which the server has read the head above
        second.sendall(head)
        sends = threading.Thread(target=second.sendall, args=(body,))
        sends.start()
        assert invoke(port, "[1, 2]")[0] == 200
        first.sendall(body[-1:])
        assert first.recv(100).startswith(b"HTTP/1.1 200")
        assert second.recv(100).startswith(b"HTTP/1.1 200")
        sends.join(60)


def test_unloaded_model_gives_503():
    front, workers = front_of(Adds(ONE))
    assert front.get("/ping").status_code == 200
    workers.is_loaded = False
    for response in (front.get("/ping"), front.post("/invocations", data="[1, 2]")):
        assert (response.status_code, response.json) == (503, {"error": "the model is still being loaded"})


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        ("GET /ping HTTP/1.0\r\n\r\n", b"HTTP/1.0 200"),
        ("POST /invocations HTTP/1.1\r\nContent-Length: 9\r\n\r\n[1,", b"HTTP/1.1 503"),  # never comes to its end
    ],
)
def test_stopping_server_answers_started_requests(sent, answer):
    server, port = server_of(Adds(ONE))
    with socket.create_connection(("127.0.0.1", port), timeout=60) as asks:
        asks.sendall(sent.encode())
        server.stop()
        assert server.run()
        assert asks.recv(100).startswith(answer)
    wasyncore.close_all(server._map)  # connections end with the process else


@pytest.mark.parametrize(("sent", "status", "why"), [
    (b"GET http://[ HTTP/1.1", 400, "cannot be parsed"),
    (b"POST /invocations HTTP/1.1\r\nContent-Length: " + b"9" * 5000, 400, "cannot be parsed"),
    (b"POST /invocations HTTP/1.1\r\nContent-Length: x", 400, "Content-Length is invalid"),
    (b"POST /invocations HTTP/1.1\r\nContent-Length: 9999999", 413, "larger than 1 MB, SAGEMAKER_MAX_PAYLOAD_IN_MB"),
    (b"POST /invocations HTTP/1.1\r\nTransfer-Encoding: gzip", 400, "Transfer-Encoding requested is not supported"),
    (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 99_999, 400, "does not begin with its size"),
    (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + b"a" * 99_999, 431, "what follows the body"),
    (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nx", 400, "Invalid chunk size"),
    (b"GET /ping HTTP/1.1\r\nA: \0", 400, "Invalid header"),
    (b"GET /ping HTTP/1.1\r\nA: " + b"x" * 99_999, 431, "exceeds max_header"),
])  # fmt: skip
def test_malformed_request_is_refused_with_the_reason(sent, status, why):
    with running(Adds(ONE), SAGEMAKER_MAX_PAYLOAD_IN_MB="1") as port, connected(port) as asks:
        asks.sendall(sent + b"\r\n\r\n")
        assert answer_of(asks, status)["error"].count(why) == 1


def test_padded_header_takes_linear_time():
    def parse(count):
        parser = _RequestParser(Adjustments())
        parser.received(b"GET /ping HTTP/1.1\r\nA:" + b" " * count + b"x  y\r\n\r\n")
        assert parser.headers == {"A": "x  y"}

    grows_no_faster_than_its_input(parse, 4000)


def test_client_reads_refusal_of_its_too_large_body():
    with running(Adds(ONE), SAGEMAKER_MAX_PAYLOAD_IN_MB="1") as port:
        refusal = {"error": "the body is larger than 1 MB, SAGEMAKER_MAX_PAYLOAD_IN_MB"}
        assert invoke(port, " " * (8 << 20)) == (413, refusal)


def test_idle_connections_make_room_for_others(monkeypatch):
    monkeypatch.setattr("entrypoint.serving.http_server.MOST_CONNECTIONS", 12)
    with running(Adds(ONE)) as port, ExitStack() as stack:
        half = stack.enter_context(connected(port))
        half.sendall(b"POST /invocations HTTP/1.1\r\nContent-Le")
        for _ in range(30):
            stack.enter_context(connected(port))
        assert invoke(port, "[1, 2]") == (200, '{"predictions": [3.0]}')
        assert answer_of(half, 503) == {"error": "there are too many connections"}


def turned(server: Server, is_so) -> None:
    """Run the server's loop until a condition holds."""
    eventually(lambda: server._turn(0.01) or is_so(), 60)


def test_active_connections_are_not_closed_as_idle():
    server, port = server_of(model := Waits(ONE))
    with connected(port) as asks:
        for _ in range(2):  # on one connection
            asks.sendall(b"POST /invocations HTTP/1.1\r\nContent-Length: 6\r\n\r\n[1, 2]")
            turned(server, lambda: any(channel.requests for channel in server.active_channels.values()))
            (channel,) = server.active_channels.values()
            channel.heard = -1e9  # as if that were long ago
            server._close_silent()
            model.gate.set()
            turned(server, lambda: not server._is_busy())
            server._close_silent()
            assert answer_of(asks, 200) == {"predictions": [3.0]}
        channel.heard = -1e9
        server._close_silent()
        assert asks.recv(1) == b""
    wasyncore.close_all(server._map)


def test_slow_reader_of_an_answer_is_not_disconnected():
    server, port = server_of(Adds(ONE))
    with connected(port) as asks:
        turned(server, lambda: server.active_channels)
        (channel,) = server.active_channels.values()
        channel.write_soon(bytes(32 << 20))  # more than the kernel keeps
        for _ in range(3):
            channel.heard, left = -1e9, channel.total_outbufs_len
            turned(server, lambda left=left: asks.recv(1 << 20) and channel.total_outbufs_len < left)
            server._close_silent()
            assert channel.connected
        channel.heard = -1e9
        server._close_silent()
        assert not channel.connected
    wasyncore.close_all(server._map)


def test_ping_does_not_wait_for_other_requests():
    model = Waits(ONE)
    with running(model, SAGEMAKER_MODEL_SERVER_WORKERS="1") as port, ExitStack() as stack:
        stack.callback(model.gate.set)
        for path in ("/invocations", "/ping", "/ping"):
            asks = stack.enter_context(connected(port))
            asks.sendall(f"POST {path} HTTP/1.1\r\nContent-Length: 6\r\n\r\n[1, 2]".encode())
            assert model.reached.wait(60)
        for _ in range(2):  # the second comes after the server has read the above
            asks = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))
            asks.sendall(b"GET /ping HTTP/1.0\r\n\r\n")
            assert asks.recv(12) == b"HTTP/1.0 200"


def test_too_few_file_descriptors_are_reported(monkeypatch):
    serving = read_serving({"SAGEMAKER_BIND_TO_PORT": str(unused_port())})
    monkeypatch.setattr("resource.getrlimit", lambda _: (8, 8))
    with pytest.raises(ConfigError, match=r"may have 8 open files \(ulimit -n\); wanted [0-9]+ at least"):
        Server(None, serving)


# ---- the model's process


def test_ping_fails_for_hung_but_not_for_late_threads(caplog, monkeypatch):
    monkeypatch.setattr("entrypoint.serving.front.HOPELESS", 10**6)
    two = {"SAGEMAKER_MODEL_SERVER_WORKERS": "2", "SAGEMAKER_MODEL_SERVER_TIMEOUT": "1"}
    front, _ = front_of(model := Waits(ONE), **two)
    try:
        late = (503, {"error": "no answer within 1 s (SAGEMAKER_MODEL_SERVER_TIMEOUT)"})
        for _ in range(2):
            assert front.get("/ping").status_code == 200
            response = front.post("/invocations", data="[1, 2]")
            assert (response.status_code, response.json) == late
        assert front.get("/ping").status_code == 200  # all are late, and may be slow only
        busy = front.post("/invocations", data="[1, 2]")
        assert (busy.status_code, busy.json) == (503, {"error": "all threads have been busy for 1 s"})
        monkeypatch.setattr("entrypoint.serving.front.HOPELESS", 1)
        for response in (front.get("/ping"), front.post("/invocations", data="[1, 2]")):
            assert response.status_code == 503 and "2 of 2 threads hang" in response.json["error"]
        assert "POST '/invocations' has no answer after 1 s, and may hang, as 2 of 2 threads do" in caplog.text
    finally:
        model.gate.set()
    eventually(lambda: front.get("/ping").status_code == 200, 60)
    eventually(lambda: front.post("/invocations", data="[1, 2]").json == {"predictions": [3]}, 60)
    assert "came to an end" in caplog.text


def test_ping_fails_if_one_thread_hangs_for_long(monkeypatch):
    monkeypatch.setattr("entrypoint.serving.front.HOPELESS", 1)
    workers, theirs = threads_of(2, 1)
    assert workers.ask({"wsgi.input": io.BytesIO()})[0] == "503 Service Unavailable"
    eventually(lambda: "1 of 2 threads hang" in workers.unwell(), 60)
    [connection.close() for connection in theirs]


def test_thread_with_an_unreadable_answer_counts_as_hanging(monkeypatch):
    monkeypatch.setattr("entrypoint.serving.front.HOPELESS", 0)
    workers, theirs = threads_of(2, 60)
    theirs[0].send_bytes(b"no JSON")
    with pytest.raises(ValueError, match="Expecting value"):
        workers.ask({"wsgi.input": io.BytesIO()})
    assert "1 of 2 threads hang" in workers.unwell()


def test_model_process_exit_is_noticed_despite_inherited_connections(monkeypatch):
    servers: list[Server] = []
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr("entrypoint.serving.__main__.Server", lambda *a: servers.append(Server(*a)) or servers[0])
    serving = read_serving({"SAGEMAKER_BIND_TO_PORT": str(unused_port())})
    (ready,), _kept = connect(1, 60)
    model = subprocess.Popen(["sh", "-c", f"exit {ExitCode.CODE}"])
    codes: list[int] = []
    act = threading.Thread(
        target=lambda: codes.append(_answer(serving, ModelThreads([], 60), model.pid, ready, [])), daemon=True
    )
    act.start()
    act.join(60)
    model.wait(60)  # which has been waited for
    assert codes == [ExitCode.CODE]
    wasyncore.close_all(servers[0]._map)


FORKS = """
import multiprocessing, signal, threading
from entrypoint.serving.model_process import _prepare_forks
from entrypoint.serving.front import connect

for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda *_: None)
(ours,), (theirs,) = connect(1, 60)
_prepare_forks([ours])
context = multiprocessing.get_context("fork")
child = context.Process(target=context.Event().wait)
starts = threading.Thread(target=child.start)
starts.start()
starts.join()
ours.close()
print(theirs.poll(60))  # its end: nobody else has it
child.terminate()
child.join(60)
print(child.exitcode)
child.kill()
"""


def test_forked_child_of_a_handler_has_no_connection_and_ends_on_sigterm():
    done = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, timeout=300)
    assert (done.stdout.split(), done.stderr) == (["True", "-15"], "")


def test_handlers_may_open_many_connections_to_the_model():
    port = _listen_to_handlers(app_of(Adds(ONE)), read_serving({}))
    with ExitStack() as stack:
        for _ in range(120):
            stack.enter_context(connected(port))
        assert invoke(port, "[1, 2]") == (200, '{"predictions": [3.0]}')


def test_requests_are_refused_after_model_process_exit():
    workers, theirs = threads_of(1, 60)
    theirs[0].close()
    status, _, body = workers.ask({"wsgi.input": io.BytesIO()})
    assert (status, json.loads(body)["error"]) == ("503 Service Unavailable", "the process of the model has ended")
    assert workers.unwell() == "the process of the model has ended"


# ---- environment


def test_execution_parameters_fit_payload_and_threads():
    def told_with(**environment: str):
        return front_of(Adds(ONE), **environment)[0].get("/execution-parameters").json

    told = told_with(SAGEMAKER_MODEL_SERVER_WORKERS="8")
    assert told == {"MaxConcurrentTransforms": 8, "BatchStrategy": "MULTI_RECORD", "MaxPayloadInMB": 6}
    told = told_with(SAGEMAKER_MAX_PAYLOAD_IN_MB="50", SAGEMAKER_BATCH_STRATEGY="SINGLE_RECORD")
    assert told == {"MaxConcurrentTransforms": 2, "BatchStrategy": "SINGLE_RECORD", "MaxPayloadInMB": 50}
    assert told_with(SAGEMAKER_MAX_CONCURRENT_TRANSFORMS="5")["MaxConcurrentTransforms"] == 5


def test_serving_settings_are_read_from_sagemakers_variables():
    environment = {"SAGEMAKER_SAFE_PORT_RANGE": "x", "SAGEMAKER_MAX_PAYLOAD_IN_MB": "6"}
    serving = read_serving({"SAGEMAKER_BIND_TO_PORT": "9000", **environment})
    assert (serving.port, serving.max_payload) == (9000, 6 << 20)
    assert read_serving({"SAGEMAKER_MAX_PAYLOAD_IN_MB": "0"}).max_payload > 1 << 30  # 0 is no limit
    for timeout, seconds in {"0": 3600, "60.0": 60, "1": 1, "": 60}.items():
        assert read_serving({"SAGEMAKER_MODEL_SERVER_TIMEOUT": timeout}).timeout == seconds
    for wrong in ("60.5", ".0", "-1"):
        with pytest.raises(ConfigError, match="wanted seconds for an answer, 0: no limit"):
            read_serving({"SAGEMAKER_MODEL_SERVER_TIMEOUT": wrong})
    with pytest.raises(ConfigError, match="SAGEMAKER_BIND_TO_PORT is 'http'; wanted a port"):
        read_serving({"SAGEMAKER_BIND_TO_PORT": "http"})


# ---- where a model lies


@pytest.mark.parametrize(
    ("files", "path", "name", "version"),
    [
        (["1/saved_model.pb"], "1", "model", "1"),
        (["2/saved_model.pb", "10/saved_model.pb", "9/notes.txt"], "10", "model", "10"),
        (["export/Servo/1700000000/saved_model.pb"], "export/Servo/1700000000", "Servo", "1700000000"),
        (["half/0001/saved_model.pb", "code/1/saved_model.pb"], "half/0001", "half", "0001"),
        (["saved_model.pb", "variables/variables.index"], "", "model", "1"),
        (["digits.keras"], "digits.keras", "digits", "1"),
        (["best.h5", "1/saved_model.pb", ".hidden/1/saved_model.pb"], "1", "model", "1"),
        (["a/1/saved_model.pb", "chosen/1/saved_model.pb"], "chosen/1", "chosen", "1"),
        (["a.keras", "chosen.keras"], "chosen.keras", "chosen", "1"),
        (["a/saved_model.pb", "chosen/saved_model.pb"], "chosen", "chosen", "1"),
    ],
)
def test_model_is_found_at_usual_export_paths(tmp_path: Path, files, path, name, version):
    write_files(tmp_path / "model", dict.fromkeys(files, ""))
    found = find_model(tmp_path / "model", "chosen")
    assert (found.path, found.name, found.version) == (tmp_path / "model" / path, name, version)


@pytest.mark.parametrize(("files", "complaint"), [
    ([], "but nothing; wanted a SavedModel in a numbered folder"),
    (["notes.txt", "checkpoint"], "found no model in .*, but checkpoint, notes.txt; wanted"),
    (["a/1/saved_model.pb", "b/1/saved_model.pb"], "found 2 models in .*: a, b; wanted"),
    (["a.h5", "b.keras"], "found 2 models without a number"),
    (["a.h5", "chosen.h5", "chosen.keras"], "found 2 models without a number in .*: chosen.h5, chosen.keras; wanted"),
])  # fmt: skip
def test_missing_or_ambiguous_model_is_refused(tmp_path: Path, files, complaint):
    (tmp_path / "model").mkdir()
    write_files(tmp_path / "model", dict.fromkeys(files, ""))
    with pytest.raises(ConfigError, match=complaint):
        find_model(tmp_path / "model", "chosen")
    with pytest.raises(ConfigError, match="there is no folder"):
        find_model(tmp_path / "nowhere")


# ---- the user's code


def test_handlers_run_before_and_after_the_model(tmp_path: Path):
    text = """
import json
def input_handler(data, context):
    assert (context.request_content_type, context.model_name, context.model_version) == ("text/plain", "adds", "3")
    return json.dumps({"instances": [[float(x) for x in data.read().decode().split()]]})
def output_handler(response, context):
    if response.status_code != 200:
        raise ValueError(response.content.decode())
    return f"{context.custom_attributes}: {response.json()['predictions']}", context.accept_header
"""
    app = client(ONE, write_files(tmp_path, {"model/code/inference.py": text}))
    headers = {"X-Amzn-SageMaker-Custom-Attributes": "who=me", "Accept": "text/plain"}
    response = app.post("/invocations", data="1 2", content_type="text/plain", headers=headers)
    assert (response.status_code, response.data, response.content_type) == (200, b"who=me: [3.0]", "text/plain")
    response = app.post("/invocations", data="1 2 3", content_type="text/plain")
    assert response.status_code == 500
    assert response.json["error"].startswith("inference.py: ValueError: ") and "[1, 3]" in response.json["error"]


LEAVES = """
import sys
class Leaves(BaseException): pass
class Mute(Exception):
    def __str__(self): raise ValueError
def handler(data, context):
    what = data.read().decode()
    if what == "leave": sys.exit("no more of this")
    if what == "stop": raise KeyboardInterrupt
    if what == "own": raise Leaves("my own")
    if what == "mute": raise Mute
    if what == "two lines": return b"x", "text/plain\\nX: y"
    return what, "text/plain"
"""


LEFT = {
    "leave": "SystemExit: no more of this",
    "stop": "KeyboardInterrupt",
    "own": "Leaves: my own",
    "mute": "Mute: (its text cannot be had: ValueError)",
    "two lines": (
        "ValueError: the handler returned the content type 'text/plain\\nX: y'; wanted one that a header can hold"
    ),
}


def test_server_survives_any_exception_of_a_handler(tmp_path: Path):
    with running(Adds(ONE), write_files(tmp_path, {"model/code/inference.py": LEAVES})) as port:
        for what, why in LEFT.items():
            assert invoke(port, what) == (500, {"error": f"inference.py: {why}"})
            assert [invoke(port, "hi")[0] for _ in range(20)] == [200] * 20


def test_server_survives_a_model_that_exits():
    """A SavedModel may run the user's Python. Flask and waitress pass on errors that are no subclass of Exception."""

    class Leaves(Adds):
        def predict(self, signature, inputs):
            raise SystemExit(3)

    with running(Leaves(ONE)) as port:
        status, answer = invoke(port, "[1, 2]")
        assert status == 500 and answer["error"].startswith("the model failed: SystemExit")
        assert invoke(port, "[1")[0] == 400


def server_of(model: Adds, base: str | Path = "/nowhere", **environment: str) -> tuple[Server, int]:
    front, _ = front_of(model, base, SAGEMAKER_BIND_TO_PORT=str(unused_port()), **environment)
    return Server(front.application, front.application.serving), front.application.serving.port


@contextmanager
def running(model: Adds, base: str | Path = "/nowhere", **environment: str):
    """Yield the port of a server."""
    server, port = server_of(model, base, **environment)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield port
    finally:
        server.stop()
    thread.join(60)
    assert not thread.is_alive()
    wasyncore.close_all(server._map)


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=60)


def answer_of(asks: socket.socket, status: int):
    """Read the answer from a connection; return its JSON."""
    response = http.client.HTTPResponse(asks)
    response.begin()
    body = response.read()
    response.close()
    assert response.status == status, body
    return json.loads(body)


def invoke(port: int, text: str):
    """Send a payload to /invocations; return (status, answer)."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", "/invocations", text.encode())
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response.status, json.loads(body) if response.status != 200 else body.decode()


def test_long_custom_attributes_take_linear_time():
    def ask_with(count):
        answers(ONE, {ATTRIBUTES: "tfs-" * count}, [1, 2])

    grows_no_faster_than_its_input(ask_with, 4000)


DEFAULT = {"SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT": "image/png"}
HANDLED = {
    # what one handler returns, environment, headers and body of a request: the answer
    "all": ("data.read() + context.rest_uri.encode(), 'a/b'", {}, {"Content-Type": "text/plain"}, b"hi ",
            (b"hi http://127.0.0.1:8080/v1/models/adds:predict", "a/b")),
    "default for Accept": ("'x', context.accept_header", DEFAULT, {}, b"", (b"x", "image/png")),
    "Accept": ("'x', context.accept_header", DEFAULT, {"Accept": "a/b"}, b"", (b"x", "a/b")),
    "a compressed body, as it came": ("data.read(), 'a/b'", {}, {"Content-Encoding": "gzip"}, PACKED, (PACKED, "a/b")),
}  # fmt: skip


@pytest.mark.parametrize(("returned", "environment", "headers", "body", "answer"), HANDLED.values(), ids=HANDLED)
def test_single_handler_may_replace_all_steps(tmp_path: Path, returned, environment, headers, body, answer):
    write_files(tmp_path, {"model/code/inference.py": f"def handler(data, context): return {returned}"})
    response = client(ONE, tmp_path, **environment).post("/invocations", data=body, headers=headers)
    assert (response.data, response.content_type) == answer


HANDLER = {"inference.py": "def handler(data, context): return 'x', 'a/b'"}
MINE = {"SAGEMAKER_PROGRAM": "mine.py", "SAGEMAKER_SUBMIT_DIRECTORY": "s3://bucket/sourcedir.tar.gz"}
UNUSABLE = [
    # files beside the model, environment, complaint
    ({"inference.py": "import nothing_of_this_name"}, {},
     "cannot be imported: ModuleNotFoundError: No module named 'nothing_of_this_name'"),
    ({"inference.py": "raise KeyboardInterrupt"}, {}, "cannot be imported: KeyboardInterrupt"),
    ({"inference.py": "def handle(data, context): pass"}, {},
     "has no handlers; wanted input_handler and output_handler, or handler"),
    ({"inference.py": "def input_handler(data, context): pass"}, {},
     "has input_handler alone; wanted input_handler and output_handler, or"),
    ({"inference.py": "def output_handler(data, context): pass"}, {},
     "has output_handler alone; wanted input_handler and output_handler,"),
    ({"requirements.txt": "--no-index\nno-such-distribution-of-anybody\n", **HANDLER}, {},
     "requirements.txt in .* line 2 asks for no-such-distribution-of-anybody"),
    ({}, MINE,
     r"SAGEMAKER_PROGRAM is 'mine\.py', which is neither in .* give source_dir, too, so that the SDK repacks"),
    ({"train.py": "raise SystemExit('trains')"},
     {"SAGEMAKER_PROGRAM": "train.py", "SAGEMAKER_SUBMIT_DIRECTORY": "/opt/ml/model/code"}, "SystemExit: trains"),
]  # fmt: skip


@pytest.mark.parametrize(("files", "environment", "complaint"), UNUSABLE)
def test_unusable_inference_code_is_refused(tmp_path: Path, files, environment, complaint):
    write_files(tmp_path / "model/code", files)
    with pytest.raises(CodeError, match=complaint):
        client(ONE, tmp_path, **environment)


@pytest.mark.parametrize(("files", "environment", "is_loaded"), [
    ({}, {}, False),
    ({"mine.py": HANDLER["inference.py"]}, MINE, True),
    ({"requirements.txt": "", "pip.py": "raise SystemExit('the wrong one')", **HANDLER}, {}, True),
    ({"train.py": "raise SystemExit('trains')"}, {"SAGEMAKER_PROGRAM": "train.py"}, False),  # of a training image
])  # fmt: skip
def test_handlers_are_loaded_if_present(tmp_path: Path, monkeypatch, files, environment, is_loaded):
    monkeypatch.setattr(sys, "path", [*sys.path])
    write_files(tmp_path / "code", files)
    code = load_user_code(read_serving({"SAGEMAKER_BASE_DIR": str(tmp_path), **environment}))
    assert (code is not None) is is_loaded
