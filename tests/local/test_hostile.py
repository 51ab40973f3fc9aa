"""Test that thousands of hostile requests do not affect a running job.

From addresses that are not the job's: genuine messages, sent again. From those and from the job's own: bytes of chance,
halves of requests, wrong versions, wrong types, huge and slow ones.
"""

import collections
import contextlib
import http.client
import json
import random
import socket
import threading
import time

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
    """Return (path, address it must come from, body) of messages that would end the job if they were believed."""
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
    """Return a request that no host would send, whoever sends it."""
    value = json.loads(genuine)
    keys = sorted(value)
    path = rng.choice(["/report", "/news"])
    kind = rng.randrange(14)
    if kind == 0:
        return rng.randbytes(rng.randrange(1, 3000))
    if kind == 1:
        return post(path, rng.randbytes(200))
    if kind == 2:
        other = rng.choice([PROTOCOL - 1, PROTOCOL + 1, "1", [], {}])
        return post(path, json.dumps({**value, "protocol": other}).encode())
    if kind == 3:
        odd = rng.choice(["x", -1, [[]], {"a": 1}, 10**300])
        return post(path, json.dumps({**value, rng.choice(keys): odd, "protocol": 0}).encode())
    if kind == 4:
        return post(path, json.dumps({key: value[key] for key in keys if key != rng.choice(keys)}).encode()[:-1])
    if kind == 5:
        return post(path, genuine.replace(b"false", rng.choice([b"NaN", b"-Infinity", b"1e999", b"9" * 5000])) + b"]")
    if kind == 6:
        return post(path, rng.choice([b"[", b'{"a":', b'{"protocol":']) * 100_000)
    if kind == 7:
        return post(path, b"x" * rng.choice([1 << 19, 3 << 19]))
    if kind == 8:
        return post(path, b"x", f"Content-Length: {rng.choice(['-1', '99999999999', '1e3', '5, 6', ''])}")
    if kind == 9:
        return post(path, b"FFFFFFFFFFFFFFFF\r\nx", "Transfer-Encoding: chunked")
    if kind == 10:
        method = rng.choice(["GET", "PUT", "DELETE", "TRACE", "CONNECT", "PATCH", "POST", "\x00", "get"])
        target = rng.choice(["/", "*", "//report", "/../..", "/news?x", "/report"])
        if (method, target) == ("GET", "/"):  # the live page, which the coordinator shows to the job's hosts
            target = "/nothing"
        return f"{method} {target} HTTP/1.{rng.randrange(4)}\r\n\r\n".encode()
    if kind == 11:
        return post(path, genuine)[: rng.randrange(1, 120)]  # half of it
    if kind == 12:
        return b"GET /status HTTP/1.1\r\n" + b"X: " + b"y" * 40_000 + b"\r\n\r\n"
    return post(path, genuine + genuine)  # a message with more behind it


class Storm:
    """The sender of hostile requests to all hosts of a job from many addresses; counts the answers."""

    def __init__(self, job, token: str, requests: int) -> None:
        self.job, self.token = job, token
        self.lies = lies(job)
        net = job.addresses["algo-1"].rpartition(".")[0]
        self.strangers = [f"{net}.{last}" for last in range(100, 120)] + ["127.0.0.2"]
        self.answers: collections.Counter[str] = collections.Counter()
        self.held: collections.deque[socket.socket] = collections.deque()
        self.left = iter(range(requests))

    def run(self) -> None:
        senders = [threading.Thread(target=self._send, args=(random.Random(seed),)) for seed in range(SENDERS)]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()

    def _send(self, rng: random.Random) -> None:
        while next(self.left, None) is not None:
            target = rng.choice(self.job.names)
            source, request = self._one(rng)
            answer = self._ask(source, target, request, slowly=rng.random() < 0.05)
            self.answers[answer] += 1

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
        number = self.job.names.index(target)
        address = (self.job.addresses[target], self.job.control_port + number * self.job.stride)
        try:
            with contextlib.ExitStack() as stack:
                connection = stack.enter_context(
                    socket.create_connection(address, timeout=5, source_address=(source, 0))
                )
                if slowly:  # and then nothing: it stays open
                    connection.sendall(request[:20])
                    stack.pop_all()
                    self._hold(connection)
                    return "held"
                connection.sendall(request)
                connection.settimeout(0.3)
                answer = http.client.HTTPResponse(connection)
                answer.begin()
                return str(answer.status)
        except TimeoutError:
            return "no answer"
        except (OSError, http.client.HTTPException):
            return "closed"

    def _hold(self, connection: socket.socket) -> None:
        self.held.append(connection)
        if len(self.held) > 600:
            self.held.popleft().close()

    def let_go(self) -> None:
        while self.held:
            self.held.popleft().close()


def status(job, number: int, token: str) -> dict | None:
    """Return the status page as users on the host see it; None while there is no answer."""
    headers = {"X-Entrypoint-Token": token} if token else {}
    with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
        own = job.addresses[f"algo-{number}"]
        port = job.control_port + (number - 1) * job.stride
        connection = http.client.HTTPConnection(own, port, timeout=5, source_address=("127.0.0.1", 0))
        with contextlib.closing(connection):
            connection.request("GET", "/status", headers=headers)
            answer = connection.getresponse()
            return json.load(answer) if answer.status == 200 else None
    return None


@pytest.mark.parametrize(
    "token, requests",
    [("", 1_000), pytest.param("", 10_000, marks=pytest.mark.more), (TOKEN, 1_000)],
    ids=["no token", "no token, 10,000", "token"],
)
def test_hostile_requests_change_nothing(hosts, token, requests, record_property):
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
    began = time.monotonic()
    storm.run()
    took = time.monotonic() - began
    over.set()
    looker.join()
    print(f"{requests} hostile requests in {took:.1f} s: {dict(storm.answers)}; {len(seen)} looks at the status")
    record_property(f"seconds for {requests} hostile requests", round(took, 1))
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
    storm.let_go()
