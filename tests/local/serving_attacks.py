"""Attack a `serve` process while valid requests come, and print how many of these were lost.

    PYTHONPATH=.:tests python tests/local/serving_attacks.py --requests 2000

For each attack it prints how many valid requests, 32 at once, were lost, and how long the slowest /ping took.
"""

import argparse
import functools
import gzip
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ports import unused_port
from waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 300.0  # seconds: when to give up
AT_ONCE = 32
THREADS = 8
LIMIT = 4  # seconds for an answer, where handlers hang
HANDLERS = """
import threading

def input_handler(data, context):
    body = data.read()
    if b"hang" in body:
        threading.Event().wait()
    return body

def output_handler(response, context):
    return response.content, "application/json"
"""


@dataclass
class Attack:
    """The action that each of `at_once` parallel attackers repeats. It returns a status, or 0 for no answer."""

    act: Callable[[int], int]
    at_once: int = 4
    environment: dict[str, str] = field(default_factory=dict)
    limits: str = ""  # for the shell's ulimit
    handlers: str = ""
    once: bool = False


def answer_to(port: int, sent: bytes) -> int:
    """Send raw bytes; return the status of the answer, or 0 if no answer comes."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as client:
        with suppress(ConnectionError):  # an answer may have come before all is sent
            client.sendall(sent)
        response = http.client.HTTPResponse(client)
        try:
            response.begin()
            text = response.read()
        except (OSError, http.client.HTTPException):
            return 0
    return response.status if response.status == 200 or json.loads(text)["error"] else 0


def post(port: int, body: bytes, kind: str = "application/json") -> int:
    head = f"POST /invocations HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: {kind}\r\n"
    return answer_to(port, f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)


def idle(port: int) -> int:
    """Open connections that send nothing or half a request; keep them open while a valid request is answered."""
    opened = []
    for number in range(100):
        with suppress(OSError):
            opened.append(socket.create_connection(("127.0.0.1", port), 5))
            if number % 2:
                opened[-1].sendall(b"POST /invocations HTTP/1.1\r\nContent-Le")
    status = post(port, b"[1, 2]")
    for connection in opened:
        connection.close()
    return status


ODD_HEADS = [
    b"GET http://[ HTTP/1.1\r\n\r\n",
    b"POST /invocations HTTP/1.1\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
    b"POST /invocations HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    b"POST /invocations HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n",
    b"POST /invocations HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 100_000,
    b"POST /invocations HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + b"a" * 100_000,
    b"GET /ping HTTP/1.1\r\nA: \0\r\n\r\n",
    b"GET /ping HTTP/1.1\r\nA:" + b" " * 30_000 + b"x\r\n\r\n",
    b"GET /ping HTTP/1.1\r\nA: " + b"x" * 300_000 + b"\r\n\r\n",
    b"POST /invocations HTTP/1.1\r\nContent-Length: 2\r\nAccept: ;;q=\xff,/;q=z\r\nConnection: close\r\n\r\n[]",
    b"\xff\xfe\r\n\r\n",
]


@functools.cache
def one_row() -> bytes:
    return gzip.compress(b"[[" + b"1," * 41_999_999 + b"1]]")


EMPTY = gzip.compress(b"") * 155_000
ATTACKS = {
    "empty gzip members": Attack(lambda port: post(port, EMPTY)),
    "a row of 42 million numbers": Attack(lambda port: post(port, one_row())),
    "handlers that hang": Attack(
        lambda port: post(port, b"hang"), THREADS - 1, {"SAGEMAKER_MODEL_SERVER_TIMEOUT": str(LIMIT)},
        handlers=HANDLERS, once=True,
    ),
    "64 descriptors, idle connections": Attack(idle, 2, limits="ulimit -n 64"),
    "odd headers": Attack(lambda port: max({answer_to(port, head) or 999 for head in ODD_HEADS}) % 999),
    "40 MB, no room for files": Attack(
        lambda port: post(port, b"[[1.5, 2.5]" + b" " * (40 << 20) + b"]"), limits="ulimit -f 1024"
    ),
    "1.5 million rows": Attack(lambda port: post(port, b"[" + b"[1.5, 2.5], " * 1_500_000 + b"[1, 2]]"), once=True),
    "101 MB": Attack(lambda port: post(port, b" " * (101 << 20)), 2),
    "a field of CSV of 1 MB": Attack(lambda port: post(port, b"1," + b"1" * (1 << 20) + b"\n", "text/csv")),
}  # fmt: skip


class Server:
    """One `serve` process on its own port. `limits`: for the shell's ulimit."""

    def __init__(self, base: Path, limits: str = "", **environment: str) -> None:
        self.port, self.log = unused_port(), base / "log"
        own = {"SAGEMAKER_BASE_DIR": str(base), "SAGEMAKER_BIND_TO_PORT": str(self.port), "PYTHONPATH": str(ROOT)}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                ["bash", "-c", f"{limits or ':'}; exec {sys.executable} -m entrypoint.serving"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **own, **environment},
            )  # fmt: skip

    def is_up(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        with suppress(OSError):
            return ping(self.port) == 200
        return False


def attacked(folder: Path, models: Path, attack: Attack) -> Server:
    """Start a server with the model of makes_models.py for an attack."""
    shutil.copytree(models / "saved", folder / "model")
    if attack.handlers:
        (folder / "model/code").mkdir()
        (folder / "model/code/inference.py").write_text(attack.handlers)
    server = Server(folder, attack.limits, SAGEMAKER_MODEL_SERVER_WORKERS=str(THREADS), **attack.environment)
    try:
        eventually(server.is_up, PATIENCE)
    except BaseException:
        server.process.kill()
        print(server.log.read_text())
        raise
    return server


def ping(port: int) -> int:
    return answer_to(port, b"GET /ping HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")


def run(name: str, models: Path, requests: int) -> dict[str, object]:
    """Run an attack and return its result."""
    attack, found = ATTACKS[name], Counter[str]()
    enough, over = threading.Event(), threading.Event()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(AT_ONCE + attack.at_once + 1) as pool:
        server = attacked(Path(folder), models, attack)
        slowest = 0.0

        def attacks() -> None:
            while True:
                found[f"answered {attack.act(server.port)}"] += 1
                if enough.is_set() or attack.once:
                    return

        def pings() -> None:
            nonlocal slowest
            while not over.wait(0.1):
                began = time.monotonic()
                found[f"ping {ping(server.port)}"] += 1
                slowest = max(slowest, time.monotonic() - began)

        def is_answered(number: int) -> bool:
            try:
                connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
                body = json.dumps({"instances": [[number, 1]]})
                connection.request("POST", "/invocations", body, {"Content-Type": "application/json"})
                answer = json.load(connection.getresponse())
                connection.close()
                if answer == {"predictions": [number + 1]}:
                    return True
            except (OSError, ValueError, http.client.HTTPException) as error:
                answer = f"{type(error).__name__}: {error}"
            found[f"lost: {answer}"] += 1
            return False

        try:
            beside = [pool.submit(act) for act in (pings, *[attacks] * attack.at_once)]
            began = time.monotonic()
            answered = sum(pool.map(is_answered, range(requests)))
            seconds = time.monotonic() - began
            enough.set()
            [each.result() for each in beside[1:]]
            if attack.handlers:
                post(server.port, b"hang")  # with the last thread
                eventually(lambda: ping(server.port) == 503, PATIENCE)  # since the first hangs for too long
            over.set()
            beside[0].result()
            last = ping(server.port)
            with socket.create_connection(("127.0.0.1", server.port), 60) as half:
                half.sendall(b"POST /invocations HTTP/1.1\r\nContent-Length: 9\r\n\r\n[")
                ping(server.port)  # after which the server has read that
                server.process.send_signal(signal.SIGTERM)
                half_status = half.recv(12)[-3:].decode()
            code = server.process.wait(60)
        except BaseException:
            print(server.log.read_text())
            raise
        finally:
            over.set()
            server.process.kill()
            server.process.wait()
        return {
            "lost": requests - answered, "seconds": round(seconds, 1), "slowest /ping": round(slowest, 3),
            "last /ping": last, "half a request at SIGTERM": half_status, "exit code": code,
            **found, "log": server.log.read_text(),
        }  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--only", default="")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        subprocess.run([sys.executable, Path(__file__).parent / "makes_models.py", made], check=True)
        for each in ATTACKS:
            if chosen.only in each:
                result = run(each, Path(made), chosen.requests)
                log = str(result.pop("log"))
                print(each, result, flush=True)
                print(
                    "   ", "\n    ".join(log.splitlines()[-30:] if chosen.only else log.splitlines()[-1:]), flush=True
                )
