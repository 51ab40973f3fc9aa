"""Test that thousands of hostile requests do not affect a running job.

Addresses outside the job send genuine messages again. These addresses and the job's own send random bytes, half
requests, wrong versions, wrong types, and huge or slow requests.
"""

import collections
import contextlib
import http.client
import json
import random
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from waiting import eventually

from entrypoint.launcher.control.wire import PROTOCOL, to_json
from entrypoint.launcher.outcome.outcome import Cause, failed, succeeded
from entrypoint.launcher.policy.events import News, Report

SENDERS = 8
PROGRAM = """
import os, pathlib, time
print("at work", flush=True)
while not pathlib.Path(os.environ["TEST_FOLDER"], "enough").exists():
    time.sleep(0.05)
"""
TOKEN = "the-token-of-this-job"


def lies(job) -> list[tuple[str, str, bytes]]:
    """Return (path, required sender address, body) of messages that would end the job if a host accepted them."""
    found = []
    for name in job.names[1:]:
        cause = Cause(host=name, process="script", what="exit code 7", error="LieError", code=7)
        for report in (
            Report(host=name, done=True, clean=True),
            Report(host=name, gone=True),
            Report(host=name, stopping=True),
            Report(host=name, done=True, clean=False, cause=cause),
            Report(host=name, attempt=5, ack=10**9),
        ):
            found.append(("/report", name, json.dumps(to_json(report)).encode()))
        for news in (
            News(outcome=failed(cause)),
            News(outcome=succeeded()),
            News(stopping=True),
            News(attempt=9, go=False),
        ):
            found.append(("/news", "algo-1", json.dumps(to_json(news)).encode()))
    return found


def post(path: str, body: bytes, *headers: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: x", "Content-Type: application/json", *headers]
    if not any("ength" in header or "hunked" in header for header in headers):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def malformed(rng: random.Random, genuine: bytes) -> bytes:
    """Return a malformed request, which no launcher sends."""
    value, path, any_of = json.loads(genuine), rng.choice(["/report", "/news"]), rng.choice
    whole = post(path, genuine)

    def other(**changed: object) -> bytes:
        return post(path, json.dumps({**value, **changed}).encode())

    methods = ["GET", "PUT", "DELETE", "TRACE", "CONNECT", "PATCH", "POST", "\x00", "get"]
    targets = ["/nothing", "*", "//report", "/../..", "/news?x", "/report"]
    kinds = [
        lambda: rng.randbytes(rng.randrange(1, 3000)),
        lambda: post(path, rng.randbytes(200)),
        lambda: other(protocol=any_of([PROTOCOL - 1, PROTOCOL + 1, "1", [], {}])),
        lambda: other(**{any_of(sorted(value)): any_of(["x", -1, [[]], {"a": 1}, 10**300]), "protocol": 0}),
        lambda: post(path, genuine.replace(b"false", any_of([b"NaN", b"-Infinity", b"1e999", b"9" * 5000])) + b"]"),
        lambda: post(path, any_of([b"[", b'{"a":', b'{"protocol":']) * 100_000),
        lambda: post(path, b"x" * any_of([1 << 19, 3 << 19])),
        lambda: post(path, b"x", f"Content-Length: {any_of(['-1', '99999999999', '1e3', '5, 6', ''])}"),
        lambda: post(path, b"FFFFFFFFFFFFFFFF\r\nx", "Transfer-Encoding: chunked"),
        lambda: f"{any_of(methods)} {any_of(targets)} HTTP/1.{rng.randrange(4)}\r\n\r\n".encode(),
        lambda: whole[: rng.randrange(1, min(120, len(whole)))],  # a part of it
        lambda: b"GET /status HTTP/1.1\r\n" + b"X: " + b"y" * 40_000 + b"\r\n\r\n",
        lambda: post(path, genuine + genuine),  # a message with more behind it
    ]
    return any_of(kinds)()


class Storm:
    """The sender of hostile requests to all hosts of a job from many addresses; counts the answers."""

    def __init__(self, job, token: str, requests: int) -> None:
        self.job, self.token = job, token
        self.lies = lies(job)
        net = job.addresses["algo-1"].rpartition(".")[0]
        self.strangers = [f"{net}.{last}" for last in range(100, 120)] + ["127.0.0.2"]
        self.answers: collections.Counter[str] = collections.Counter()
        self.held: list[socket.socket] = []
        self.left = iter(range(requests))

    def run(self) -> None:
        with ThreadPoolExecutor(SENDERS) as pool:
            list(pool.map(self._send, map(random.Random, range(SENDERS))))

    def _send(self, rng: random.Random) -> None:
        while next(self.left, None) is not None:
            source, request = self._one(rng)
            self.answers[self._ask(source, rng.choice(self.job.names), request, slowly=rng.random() < 0.05)] += 1

    def _one(self, rng: random.Random) -> tuple[str, bytes]:
        path, whose, body = rng.choice(self.lies)
        own = self.job.addresses
        kind = rng.randrange(6)
        if kind == 0:  # genuine, of a stranger, who may even know the token
            return rng.choice(self.strangers), post(path, body, f"X-Entrypoint-Token: {self.token}")
        if kind == 1:  # genuine, from the wrong host of the job
            wrong = rng.choice([name for name in own if name != whose])
            return own[wrong], post(path, body, f"X-Entrypoint-Token: {self.token}")
        if kind == 2 and self.token:  # genuine, of a process on the right host that does not know the token
            return own[whose], post(path, body, f"X-Entrypoint-Token: {rng.choice(['', 'x', self.token[:-1]])}")
        if kind == 3:
            return rng.choice(list(own.values())), malformed(rng, body)
        return rng.choice(self.strangers), malformed(rng, body)

    def _ask(self, source: str, target: str, request: bytes, slowly: bool) -> str:
        address = self.job.control_address(int(target.removeprefix("algo-")))
        try:
            connection = socket.create_connection(address, timeout=5, source_address=(source, 0))
            if slowly:  # and then nothing: it stays open
                self.held.append(connection)
                connection.sendall(request[:20])
                return "held"
            with connection:
                connection.sendall(request)
                connection.settimeout(0.3)
                answer = http.client.HTTPResponse(connection)
                answer.begin()
                return str(answer.status)
        except TimeoutError:
            return "no answer"
        except (OSError, http.client.HTTPException):
            return "closed"


def status(job, number: int, token: str) -> dict | None:
    """Return the status page as users on the host see it; None while there is no answer."""
    with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
        here = ("127.0.0.1", 0)
        connection = http.client.HTTPConnection(*job.control_address(number), timeout=5, source_address=here)
        with contextlib.closing(connection):
            connection.request("GET", "/status", headers={"X-Entrypoint-Token": token} if token else {})
            answer = connection.getresponse()
            return json.load(answer) if answer.status == 200 else None
    return None


@pytest.mark.parametrize(
    "token, requests",
    [("", 1_000), pytest.param("", 10_000, marks=pytest.mark.more), (TOKEN, 1_000)],
    ids=["no token", "no token, 10,000", "token"],
)
def test_hostile_requests_change_nothing(hosts, token, requests):
    job = hosts(3, code=PROGRAM, **({"TOKEN": token} if token else {}))
    job.all_say("at work")
    storm = Storm(job, token, requests)
    over = threading.Event()
    seen: list[dict] = []

    def look() -> None:
        while not over.wait(0.2):
            seen.extend(filter(None, (status(job, number, token) for number in (1, 2, 3))))

    looker = threading.Thread(target=look)
    looker.start()
    storm.run()
    over.set()
    looker.join()
    print(f"{requests} hostile requests: {dict(storm.answers)}; {len(seen)} looks at the status")
    for each in seen + [eventually(lambda n=n: status(job, n, token), within=120) for n in (1, 2, 3)]:
        assert each["phase"] == "running" and each["outcome"] is None
        assert not any(peer["done"] or peer["gone"] for peer in each["peers"].values())
    assert {each["host"] for each in seen} == set(job.names)
    assert sum(storm.answers.values()) == requests
    assert storm.answers["200"] == 0, "somebody was believed"
    assert all(host.process.poll() is None for host in job.hosts.values())
    (job.folder / "enough").touch()
    job.must_end(0)
    for host in job.hosts.values():
        assert "lost" not in host.log and "LieError" not in host.log and "Traceback" not in host.log
        assert len(host.log.splitlines()) < 60, "a log that strangers can fill"
    for connection in storm.held:
        connection.close()
