"""Test the answers, the start and the end of a `serve` process with TensorFlow's SavedModels."""

import json
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from serving_attacks import ATTACKS, PATIENCE, Server, run
from waiting import eventually

pytestmark = [pytest.mark.tensorflow, pytest.mark.xdist_group("serving")]  # the models are made once

THREADS = 4


class Asked(Server):
    """A `serve` process that answers requests of the tests."""

    def get(self, path: str) -> int:
        return self._ask(urllib.request.Request(f"http://127.0.0.1:{self.port}{path}"))[0]

    def ask(self, body: Any, content_type: str = "application/json") -> tuple[int, Any]:
        """Return (status, answer) of an invocation."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        url = f"http://127.0.0.1:{self.port}/invocations"
        status, answer = self._ask(urllib.request.Request(url, data, {"Content-Type": content_type}))
        return status, json.loads(answer)

    def _ask(self, request: urllib.request.Request) -> tuple[int, bytes]:
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as response:
                return response.status, response.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def end(self) -> tuple[int, str]:
        """Wait until the process ends by itself; return (exit code, log)."""
        return self.process.wait(PATIENCE), self.log.read_text()


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    program = Path(__file__).parent / "makes_models.py"
    subprocess.run([sys.executable, program, folder], check=True, stdin=subprocess.DEVNULL, timeout=PATIENCE)
    return folder


@pytest.fixture
def serve(tmp_path: Path, no_leftovers: str) -> Iterator[Callable[..., Asked]]:
    made: list[Asked] = []

    def start(model: Path, **environment: str) -> Asked:
        base = tmp_path / f"base{len(made)}"
        shutil.copytree(model, base / "model")
        made.append(Asked(base, **environment))
        return made[-1]

    yield start
    for server in made:
        print(f"---- port {server.port}: {server.process.poll()}\n{server.log.read_text()}")
        if server.process.poll() is None:
            server.process.kill()
            server.process.wait()


def test_server_of_a_saved_model_answers_open_requests_before_it_ends(serve, models: Path, tmp_path: Path):
    server = serve(models / "saved", SAGEMAKER_MODEL_SERVER_WORKERS=str(THREADS), SAGEMAKER_MAX_PAYLOAD_IN_MB="1")
    eventually(server.is_up, PATIENCE)
    eventually(lambda: "model/1 loaded in" in server.log.read_text(), PATIENCE)
    assert "serving_default(x: float32 [n, 2]) -> sum: float32 [n]" in server.log.read_text()

    assert server.ask({"instances": [[1, 2], [3, 4]]}) == (200, {"predictions": [3, 7]})
    assert server.ask(b"1,2\n3,4\n", "text/csv") == (200, {"predictions": [3, 7]})
    example = {"b64": (models / "example").read_text()}
    parsed = {"sum": 3, "which": example}
    assert server.ask({"signature_name": "parses", "instances": [example]}) == (200, {"predictions": [parsed]})
    status, answer = server.ask({"signature_name": "parses", "instances": ["no example"]})
    assert status == 400 and answer["error"].startswith("the model cannot take this input: ")
    status, answer = server.ask({"signature_name": "looks_up", "instances": [7]})
    assert status == 400 and "7 is not in [0, 3)" in answer["error"]
    status, answer = server.ask({"instances": [[1, 2, 3]]})
    assert status == 400 and answer["error"] == "x has shape [1, 3]; wanted x: float32 [n, 2]"
    status, answer = server.ask(b" " * (2 << 20))
    assert status == 413 and "larger than 1 MB" in answer["error"]

    # More requests than threads, and none can be answered yet: /ping is.
    gate = tmp_path / "gate"
    with ThreadPoolExecutor(THREADS + 2) as clients:
        asked = [
            clients.submit(server.ask, {"signature_name": "waits", "instances": [str(gate)]})
            for _ in range(THREADS + 2)
        ]
        eventually(lambda: connections(server) == THREADS + 2, PATIENCE, "all have connected")
        assert server.get("/ping") == 200
        assert server.get("/execution-parameters") == 200

        server.process.send_signal(signal.SIGTERM)
        eventually(lambda: not listens(server.port), PATIENCE, "the port is closed")
        assert server.process.poll() is None and not any(future.done() for future in asked)
        gate.write_text("")
        assert [future.result() for future in asked] == [(200, {"predictions": [str(gate)]})] * (THREADS + 2)
    code, log = server.end()
    assert code == 0 and "all requests are answered" in log and "Traceback" not in log


def connections(server: Server) -> int:
    """Return clients' connections to the server."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return sum(line.split()[1].endswith(f":{server.port:04X}") and line.split()[3] == "01" for line in lines)


def listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


HANDLER = """
import os, time, urllib.request

def handler(data, context):
    gate = os.environ.get("GATE")
    if gate:
        open(gate + ".reached", "w").close()
        while not os.path.exists(gate):
            time.sleep(0.02)
    with urllib.request.urlopen(context.rest_uri, data.read()) as response:
        return response.read(), "application/json"
"""


def with_handler(models: Path, tmp_path: Path) -> Path:
    model = tmp_path / "model"
    (model / "code").mkdir(parents=True)
    shutil.copy(models / "two.keras", model)
    (model / "code/inference.py").write_text(HANDLER)
    return model


def test_keras_model_answers_through_user_code_even_after_sigterm(serve, models: Path, tmp_path: Path):
    # The handler has the one thread, and asks us again.
    gate = tmp_path / "gate"
    gate.touch()
    server = serve(with_handler(models, tmp_path), SAGEMAKER_MODEL_SERVER_WORKERS="1", GATE=str(gate))
    eventually(server.is_up, PATIENCE)
    rows = [{"left": [1], "right": [2]}, {"left": [0.5], "right": [0]}]
    assert server.ask({"instances": rows}) == (200, {"predictions": [[3], [0.5]]})
    assert server.ask({"inputs": {"left": [[1]], "right": [[4]]}}) == (200, {"outputs": [[5]]})

    gate.unlink()
    gate.with_suffix(".reached").unlink()
    assert lets_in_others(server.port)
    with ThreadPoolExecutor(1) as client:
        asked = client.submit(server.ask, {"instances": [{"left": [1], "right": [2]}]})
        eventually(gate.with_suffix(".reached").exists, PATIENCE)
        server.process.send_signal(signal.SIGTERM)
        eventually(lambda: not lets_in_others(server.port), PATIENCE, "the port is closed to others")
        assert not asked.done()
        gate.write_text("")
        assert asked.result() == (200, {"predictions": [[3]]})
    code, log = server.end()
    assert code == 0 and "all requests are answered" in log and "Traceback" not in log


def lets_in_others(port: int) -> bool:
    """Return whether the server answers a client at another address than its own."""
    try:
        with socket.create_connection(("127.0.0.1", port), PATIENCE, source_address=("127.0.0.2", 0)) as client:
            client.sendall(b"GET /ping HTTP/1.0\r\n\r\n")
            return client.recv(100).startswith(b"HTTP/1.0 200")
    except ConnectionError:
        return False


ALWAYS = ("handlers that hang", "64 descriptors, idle connections")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in ALWAYS else pytest.mark.more) for name in ATTACKS]
)
def test_valid_requests_are_answered_during_an_attack(models: Path, name: str):
    result = run(name, models, 100)
    assert (result["lost"], result["half a request at SIGTERM"], result["exit code"]) == (0, "503", 0), result
    assert "answered 0" not in result, "each attack was answered, with a reason"
    assert result["last /ping"] == (503 if name == "handlers that hang" else 200)
    if name == "handlers that hang":  # the log shows where
        assert "input_handler\n    threading.Event().wait()" in str(result["log"])


def test_broken_model_ends_the_server_with_one_line(serve, tmp_path: Path):
    (tmp_path / "saved/1").mkdir(parents=True)
    (tmp_path / "saved/1/saved_model.pb").write_text("this is no model")
    code, log = serve(tmp_path / "saved").end()
    assert code == 65
    errors = [line for line in log.splitlines() if "error:" in line]
    assert len(errors) == 1 and "model/1 cannot be loaded: " in errors[0] and "Traceback" not in log


def test_missing_model_ends_the_server_at_once(serve, tmp_path: Path):
    (tmp_path / "empty").mkdir()
    code, log = serve(tmp_path / "empty").end()
    assert code == 78
    assert log.startswith("serve: error: found no model in ") and "wanted a SavedModel in a numbered folder" in log
    assert "tensorflow" not in log


def test_port_in_use_ends_the_server(serve, models: Path):
    with socket.create_server(("0.0.0.0", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, log = serve(models / "saved", SAGEMAKER_BIND_TO_PORT=port).end()
    assert code == 78 and f"port {port} cannot be listened on: Address already in use" in log


def test_sigterm_while_the_model_is_loaded_ends_the_server_well(serve, models: Path):
    server = serve(models / "saved")
    eventually(lambda: listens(server.port), PATIENCE)
    server.process.send_signal(signal.SIGTERM)
    assert server.end()[0] == 0
