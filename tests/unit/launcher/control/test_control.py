"""Test wire.py, handlers.py, access.py and server.py.

A test client calls the application. The server listens on loopback. Messages are converted to JSON and back.
"""

import contextlib
import http.client
import itertools
import json
import os
import queue
import random
import resource
import socket
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st
from waiting import eventually
from werkzeug.test import Client

from entrypoint.base.codec import plain
from entrypoint.base.values import replace
from entrypoint.launcher.control.access import BURST, MESSAGE_BYTES, OPEN, PAID_BY_BYTES, Bucket, Limits
from entrypoint.launcher.control.client import TOKEN_HEADER
from entrypoint.launcher.control.handlers import Control, parse
from entrypoint.launcher.control.host_names import HostNames
from entrypoint.launcher.control.server import ControlServer
from entrypoint.launcher.control.wire import PROTOCOL, Refused, news_from_json, report_from_json, to_json
from entrypoint.launcher.host.resource_limits import Shortage
from entrypoint.launcher.job.cluster import Cluster, Host
from entrypoint.launcher.outcome.outcome import Cause, Exit, failed, stopped, succeeded
from entrypoint.launcher.policy.artifacts import Artifacts, File
from entrypoint.launcher.policy.events import Informed, News, Reach, Rejected, Report, Reported

ADDRESS = {"algo-1": "127.44.0.1", "algo-2": "127.44.0.2", "algo-3": "127.44.0.3"}
HOSTS = tuple(Host(name=name, rank=rank, address=address) for rank, (name, address) in enumerate(ADDRESS.items()))
CLUSTER = Cluster(hosts=HOSTS, me=HOSTS[0])
CAUSE = Cause(host="algo-2", process="worker/0", what="exit code 1", error="ValueError: x", code=1)
REPORT = Report(
    host="algo-2",
    ready=frozenset({"prepare"}),
    public_keys=(("known_hosts", "ssh-ed25519 A"),),
    done=True,
    clean=False,
    cause=CAUSE,
)
NEWS = News(
    ready=frozenset({("*", "prepare"), ("algo-1", "chief/0")}),
    public_keys=(("k", "ssh-ed25519 B="),),
    stopping=True,
    outcome=failed(CAUSE),
)


class Served:
    """The HTTP application of one host, with the events that it puts into the queue."""

    def __init__(self, token: str = "", news: News = NEWS, me: str = "algo-1", hosts=HOSTS, life: str = "") -> None:
        self.events: list = []
        self.status = lambda: {"phase": "running"}
        cluster = Cluster(hosts=hosts, me=next(host for host in hosts if host.name == me))
        told, self.names = json.dumps(to_json(news)).encode(), HostNames(cluster)
        self.control = Control(
            cluster, self.names, token, self.events.append, lambda: self.status(), lambda: told, life
        )
        self.client = Client(self.control)

    def call(self, path: str, body=None, *, caller: str = "algo-2", method: str = "POST", **options):
        address = ADDRESS.get(caller, caller)
        options.setdefault("data" if isinstance(body, (str, bytes)) else "json", body)
        if isinstance(body, (str, bytes)):
            options.setdefault("content_type", "application/json")
        return self.client.open(path, method=method, environ_base={"REMOTE_ADDR": address}, **options)


def test_coordinator_answers_report_with_news():
    served = Served()
    answer = served.call("/report", to_json(REPORT))
    assert answer.status_code == 200
    assert news_from_json(answer.get_json()) == NEWS
    assert served.events == [Reported(report=REPORT)]


def test_follower_accepts_news_from_coordinator():
    served = Served(me="algo-2")
    assert served.call("/news", to_json(NEWS), caller="algo-1").status_code == 200
    assert served.events == [Informed(news=NEWS)]


GOOD = {**plain(REPORT), **to_json(REPORT)}  # with the fields that may be missing, too
NO_EXITS, NO_OBJECT, WRONG = '"exits": []', "wanted a JSON object", "malformed"
BAD_REPORTS = {
    # body: what the answer must contain
    "no protocol": ({k: v for k, v in GOOD.items() if k != "protocol"}, WRONG),
    "protocol null": ({**GOOD, "protocol": None}, "must run the same image"),
    "not a host of the job": ({**GOOD, "host": "algo-9"}, "'algo-9' is not a follower"),
    "the coordinator itself": ({**GOOD, "host": "algo-1"}, "'algo-1' is not a follower"),
    "another host's name": ({**GOOD, "host": "algo-3"}, "127.44.0.2 is not algo-3"),
    "missing field": ({k: v for k, v in GOOD.items() if k != "host"}, WRONG),
    "wrong type": ({**GOOD, "ready": 5}, WRONG),
    "wrong cards": ({**GOOD, "public_keys": [["one"]]}, WRONG),
    "a public key of two lines": (
        {**GOOD, "public_keys": [["known_hosts", "ssh-ed25519 A\nssh-rsa B"]]}, "no public key"),
    "a public key with options": (
        {**GOOD, "public_keys": [["authorized_keys", 'pty,command="id" ssh-rsa B']]}, "no public key"),
    "wrong cause": ({**GOOD, "cause": {"host": "algo-2"}}, WRONG),
    "cause without number": ({**GOOD, "cause": {**GOOD["cause"], "code": "x"}}, WRONG),
    "an infinite number": ({**GOOD, "cause": {**GOOD["cause"], "code": float("inf")}}, WRONG),
    "no number": (json.dumps(GOOD).replace(NO_EXITS, '"exits": [["a", "b", NaN]]'), WRONG),
    "a number beyond all numbers": (json.dumps(GOOD).replace(NO_EXITS, '"exits": [["a", "b", 1e999]]'), WRONG),
    "an integer of 5,000 digits": (
        json.dumps(GOOD).replace('"attempt": 0', '"attempt": ' + "9" * 5000), NO_OBJECT),
    "a number in place of files": ({**GOOD, "artifacts": {"model": True, "files": 3}}, WRONG),
    "a file without a digest": ({**GOOD, "artifacts": {"model": True, "files": [["a", 1]]}}, WRONG),
    "a file whose size is a text": ({**GOOD, "artifacts": {"model": True, "files": [["a", "x", ""]]}}, WRONG),
    "an attempt that is a text": ({**GOOD, "attempt": "x"}, WRONG),
    "a text in place of a boolean": ({**GOOD, "done": "false"}, WRONG),
    "the same key twice": (json.dumps(GOOD)[:-1] + ', "host": "algo-2"}', "the same key twice"),
    "too long": ({**GOOD, "host": "x" * (MESSAGE_BYTES + 1)}, NO_OBJECT),
    "too deep": ("[" * 200_000, NO_OBJECT),
    "a list": ([1, 2], WRONG),
    "a text": ('"hello"', WRONG),
    "a number": ("5", WRONG),
    "null": ("null", WRONG),
    "nothing": ("", NO_OBJECT),
    "not JSON": ("{", NO_OBJECT),
    "not text": (b"\xff\xfe\x00", NO_OBJECT),
}  # fmt: skip


def ends(kind: str, code: int) -> dict:
    return {**to_json(NEWS), "outcome": {"kind": kind, "exit_code": code, "cause": None}}


BAD_NEWS = {
    "success with exit code 1": (ends("succeeded", 1), WRONG),
    "failure with exit code 0": (ends("failed", 0), WRONG),
    "failure with an exit code that is 0 to the kernel": (ends("failed", 256), WRONG),
    "failure with a negative exit code": (ends("failed", -256), WRONG),
    "odd kind": (ends("maybe", 1), WRONG),
    "another protocol": ({**to_json(NEWS), "protocol": "1"}, "must run the same image"),
    "wrong ready": ({**to_json(NEWS), "ready": [1]}, WRONG),
}
BAD = [
    *(pytest.param("/report", *row, id=name) for name, row in BAD_REPORTS.items()),
    *(pytest.param("/news", *row, id=name) for name, row in BAD_NEWS.items()),
]


@pytest.mark.parametrize("path, body, said", BAD)
def test_malformed_messages_are_refused_and_cause_no_event(path, body, said):
    served = Served(me="algo-1" if path == "/report" else "algo-2")
    answer = served.call(path, body, caller="algo-2" if path == "/report" else "algo-1")
    assert (answer.status_code, served.events) == (400, [])
    assert said in answer.get_json()["error"]


def test_news_from_another_follower_are_refused():
    served = Served(me="algo-2")
    assert served.call("/news", to_json(NEWS), caller="algo-3").status_code == 400
    assert served.events == []


def test_follower_refuses_reports():
    """The sender has read other groups or settings, or the coordinator's name resolves to the follower."""
    served = Served(me="algo-2", life="1f")
    for life, said in (("1f", "algo-1 leads to 127.44.0.2, which is this host"), ("2e", "algo-2 takes algo-1 for")):
        answer = served.call("/report", {**to_json(REPORT), "life": life})
        assert answer.status_code == 400 and answer.get_json()["error"].startswith(said)
    assert "groups and settings must be the same" in answer.get_json()["error"]
    assert served.events == []


@pytest.mark.parametrize("path, method", [("/report", "POST"), ("/news", "POST"), ("/status", "GET"), ("/x", "GET")])
@pytest.mark.parametrize("caller", ["10.1.2.3", "127.44.0.9", "::1", "127.0.0.1", ""])
def test_requests_from_unknown_addresses_are_refused(path, method, caller):
    """Headers that a proxy would set, or the name of a host of the job, do not make the sender a host."""
    served = Served()
    headers = {"X-Forwarded-For": ADDRESS["algo-2"], "Forwarded": f"for={ADDRESS['algo-2']}", "Host": "algo-1"}
    for more in ({}, {"headers": headers}):
        answer = served.call(path, GOOD if method == "POST" else None, caller=caller, method=method, **more)
        if method == "GET" and caller in ("127.0.0.1", "::1"):  # people on the host itself may look
            assert answer.status_code == (200 if path == "/status" else 404)
        else:
            assert answer.status_code == 403
    assert served.events == []


# --- the token, and hosts of the job that are refused for what will not change ---


@pytest.mark.parametrize("shown, code", [("right", 200), ("wrong", 401), ("", 401), ("r\u00efght", 401), (None, 401)])
def test_only_caller_with_right_token_is_answered(shown, code):
    served = Served(token="right")
    headers = {} if shown is None else {TOKEN_HEADER: shown}
    assert served.call("/report", GOOD, headers=headers).status_code == code
    assert served.call("/status", method="GET", headers=headers).status_code == code
    if code == 200:
        assert served.events == [Reported(report=REPORT)]
    else:
        (event,) = served.events
        assert (event.host, "ENTRYPOINT_TOKEN" in event.why) == ("algo-2", True)
        assert ("wrong" if shown else "missing") in event.why and "right" not in event.why


@pytest.mark.parametrize(
    "me, path, caller, method, code",
    [
        ("algo-1", "/report", "10.0.0.1", "POST", 403),
        ("algo-1", "/report", "127.0.0.1", "POST", 403),
        ("algo-1", "/status", "algo-2", "GET", 401),
        # On a follower, the coordinator's answer to its own report reports it.
        ("algo-2", "/report", "algo-3", "POST", 401),
        ("algo-2", "/news", "algo-1", "POST", 401),
    ],
)
def test_wrong_token_causes_no_event_unless_a_follower_reports(me, path, caller, method, code):
    served = Served(me=me, token="right")
    body = (GOOD if path == "/report" else to_json(NEWS)) if method == "POST" else None
    answer = served.call(path, body, caller=caller, method=method, headers={TOKEN_HEADER: "wrong"})
    assert (answer.status_code, served.events) == (code, [])


def test_report_with_other_protocol_version_is_an_event():
    served = Served()
    answer = served.call("/report", {**GOOD, "protocol": PROTOCOL + 1})
    assert answer.status_code == 400
    assert "must run the same image" in answer.get_json()["error"]
    assert served.events == [Rejected(host="algo-2", why=answer.get_json()["error"])]


class Slow(str):
    """A name whose hash takes 2 ms to compute, so that other threads run in between."""

    def __hash__(self) -> int:
        time.sleep(0.002)
        return super().__hash__()


def test_simultaneous_refusals_of_a_host_are_one_event():
    """Threads of the server and the reader of links may refuse a host at the same time."""
    served = Served(token="right", hosts=[replace(host, name=Slow(host.name)) for host in HOSTS])
    refuse = partial(served.control.answer, "POST", "/report", ADDRESS["algo-2"], "wrong", b"")
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: refuse(), range(8)))
    assert {status for status, *_ in answers} == {401}
    assert len(served.events) == 1


def test_refused_host_causes_at_most_one_event_per_second():
    served, began = Served(), time.monotonic()
    for caller in ("algo-2", "algo-3") * 20:
        assert served.call("/report", {**GOOD, "protocol": "1"}, caller=caller).status_code == 400
    told = Counter(event.host for event in served.events)
    assert set(told) == {"algo-2", "algo-3"}
    assert max(told.values()) <= 1 + int(time.monotonic() - began)


# --- rates ---


def test_token_bucket_limits_rate_burst_and_debt():
    now = 0.0
    bucket = Bucket(rate=10, burst=5, clock=lambda: now)
    assert [bucket.take() for _ in range(7)] == [True] * 5 + [False] * 2
    now = 0.25
    assert [bucket.take() for _ in range(4)] == [True] * 2 + [False] * 2
    bucket.charge(1000 * PAID_BY_BYTES)
    now = 0.7
    assert not bucket.take()
    now = 1.0
    assert bucket.take()
    now = 1000.0
    assert [bucket.take() for _ in range(7)] == [True] * 5 + [False] * 2


def test_each_host_has_a_rate_limit_and_strangers_share_one():
    limits = Limits(HostNames(CLUSTER).hosts_at)
    parties = [limits.party(address) for address in (*ADDRESS.values(), "127.0.0.1", "10.0.0.1", "10.0.0.2")]
    assert parties == [*ADDRESS.values(), "127.0.0.1", "", ""]
    assert sum(limits.of("").take() for _ in range(1000)) < 100
    assert sum(limits.of("127.44.0.1").take() for _ in range(1000)) >= BURST
    limits.of("127.44.0.2").charge(int(2 * BURST * PAID_BY_BYTES))  # big messages count for many
    assert not limits.of("127.44.0.2").take()
    assert limits.of("127.44.0.3").take()


# --- the server, on sockets ---


class Listening:
    """The server of algo-1, with its events, on a net of loopback addresses of its own."""

    def __init__(self) -> None:
        net = f"127.{random.randint(16, 250)}.{random.randint(1, 250)}"
        self.addresses = {name: f"{net}.{number}" for number, name in enumerate(ADDRESS, 1)}
        self.stranger = f"{net}.99"
        hosts = tuple(Host(name=n, rank=rank, address=a) for rank, (n, a) in enumerate(self.addresses.items()))
        self.events: list = []
        told = json.dumps(to_json(News())).encode()
        cluster = Cluster(hosts=hosts, me=hosts[0])
        control = Control(
            cluster, HostNames(cluster), "", self.events.append, lambda: {"phase": "running"}, lambda: told
        )
        self.door = ControlServer(control, Shortage(self.events.append), self.addresses["algo-1"], 0)
        self.port = self.door.socket.getsockname()[1]
        threading.Thread(target=self.door.run, daemon=True).start()

    def connect(self, caller: str) -> socket.socket:
        source = (self.addresses.get(caller, caller), 0)
        return socket.create_connection((self.addresses["algo-1"], self.port), timeout=20, source_address=source)

    def report(self, caller: str, body: bytes | None = None) -> int:
        """Return the status of the answer to a report; 0 if the connection is closed without one."""
        body = json.dumps(to_json(Report(host=caller))).encode() if body is None else body
        head = f"POST /report HTTP/1.1\r\nHost: algo-1\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        return self.send(caller, head + body)

    def send(self, caller: str, data: bytes) -> int:
        try:
            with self.connect(caller) as connection:
                connection.sendall(data)
                answer = http.client.HTTPResponse(connection)
                answer.begin()
                answer.read()
                return answer.status
        except (OSError, http.client.HTTPException):
            return 0


@pytest.fixture
def listening():
    made = Listening()
    yield made
    made.door.close()


ODD = {
    # what a host sends: the status of the answer; local/test_hostile.py sends more of the kind
    "no version": (b"GET /status\r\n\r\n", {200, 400}),
    "a whole address": (b"GET http://169.254.169.254/latest HTTP/1.1\r\n\r\n", {404}),
    "more than a message": (b"POST /report HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", {413}),
    "two lengths": (b"POST /report HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}", {400}),
    "length and chunks": (
        b"POST /report HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", {400}),
}  # fmt: skip


@pytest.mark.parametrize("data, answers", ODD.values(), ids=ODD)
def test_server_accepts_reports_after_malformed_requests(listening, data, answers, capfd):
    assert listening.send("algo-2", data) in answers
    assert listening.report("algo-3") == 200
    assert [event.report.host for event in listening.events] == ["algo-3"]
    assert capfd.readouterr().err == "", "hostile requests must not fill the log"


def test_server_answers_one_request_per_connection(listening):
    """With more requests per connection, the limit on connections would not limit requests."""
    with listening.connect("algo-2") as connection:
        connection.sendall(b"GET /status HTTP/1.1\r\nHost: x\r\n\r\n" * 100)
        got = b""
        with contextlib.suppress(ConnectionResetError):
            while block := connection.recv(1 << 16):
                got += block
    assert got.count(b"HTTP/1.1 200") == 1


def test_server_closes_connections_with_unfinished_requests(listening, monkeypatch):
    monkeypatch.setattr("entrypoint.launcher.control.server._LONGEST_SECONDS", 2.0)
    with listening.connect("algo-2") as connection:
        began = time.monotonic()

        def closed() -> bool:
            try:
                connection.sendall(b"X")
            except OSError:
                return True
            return False

        eventually(closed, within=60)
        assert time.monotonic() - began > 1


@pytest.mark.parametrize("jump", [-7200, 7200])
def test_change_of_system_clock_harms_no_request(listening, monkeypatch, jump):
    """Set forwards, the clock would close every connection. Set backwards, it would keep half a request for hours."""
    real = time.time
    monkeypatch.setattr("entrypoint.launcher.control.server._LONGEST_SECONDS", 600.0)

    def has_looked() -> None:
        before = listening.door._look_at
        eventually(lambda: listening.door._look_at > before, within=60)

    with listening.connect("algo-2") as half, listening.connect("algo-2") as whole:
        body = json.dumps(GOOD).encode()
        head = b"POST /report HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body)
        for connection in (half, whole):
            connection.settimeout(60)
            connection.sendall(head)
        has_looked()
        monkeypatch.setattr(time, "time", lambda: real() + jump)
        has_looked()
        has_looked()  # begun after the clock was set
        whole.sendall(body)
        assert whole.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
        monkeypatch.setattr("entrypoint.launcher.control.server._LONGEST_SECONDS", 0.1)
        assert half.recv(1 << 16) == b""  # it is given up all the same


def test_server_works_with_more_files_than_select_can_hold(listening):
    """Many hosts may call at once, and select() takes no file descriptor above 1023."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2048:
        pytest.skip("needs a limit of 2048 open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    held = [os.dup(0) for _ in range(1100)]
    try:
        assert [listening.report("algo-2") for _ in range(3)] == [200] * 3
    finally:
        for fd in held:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("whose", ["stranger", "algo-2"])
def test_one_caller_cannot_use_up_the_connections(listening, whose):
    with contextlib.ExitStack() as held:
        for _ in range(200):
            held.enter_context(listening.connect(listening.stranger if whose == "stranger" else whose))
        assert listening.report("algo-3") == 200
        assert len(listening.door.active_channels) <= OPEN + 1
        if whose == "stranger":
            assert listening.report("algo-2") == 200
    eventually(lambda: listening.report("algo-2") == 200, within=60)


@pytest.mark.parametrize("whose", ["stranger", "algo-2"])
def test_flood_of_requests_does_not_block_other_hosts(listening, whose):
    caller = listening.stranger if whose == "stranger" else whose
    over, sent = threading.Event(), itertools.count()

    def flood() -> None:
        while not over.is_set():
            listening.report(caller, b"[1," * 100_000)
            next(sent)

    floods = [threading.Thread(target=flood, daemon=True) for _ in range(4)]
    for each in floods:
        each.start()
    try:
        answers = [listening.report("algo-3") for _ in range(25)]
        eventually(lambda: next(sent) > 100, within=60)
        answers += [listening.report("algo-3") for _ in range(25)]
    finally:
        over.set()
        for each in floods:
            each.join(timeout=60)
    assert answers == [200] * 50
    assert {event.report.host for event in listening.events} == {"algo-3"}


# --- people ---


def test_status_needs_a_get_request_and_a_free_supervisor():
    served = Served()
    answer = served.call("/status", method="GET")
    assert (answer.status_code, answer.get_data()) == (200, b'{"phase":"running"}\n')

    def busy():
        raise queue.Empty

    served.status = busy
    assert served.call("/status", method="GET").status_code == 503
    assert served.call("/status").status_code == 405


def test_status_requests_leave_threads_for_reports():
    """Requests to a supervisor that does not answer hold two threads at most."""
    held, served = threading.Event(), Served()
    served.status = lambda: {"done": held.wait(60)}
    lookers = [threading.Thread(target=served.call, args=("/status",), kwargs={"method": "GET"}) for _ in range(2)]
    for looker in lookers:
        looker.start()
    try:
        eventually(lambda: served.call("/status", method="GET").status_code == 503, within=60)
        assert served.call("/report", GOOD).status_code == 200
    finally:
        held.set()
        for looker in lookers:
            looker.join(timeout=60)


# --- messages there and back ---

times = st.floats(allow_nan=False, allow_infinity=False)


def some(kind: type, **given: st.SearchStrategy) -> st.SearchStrategy:
    """Return a strategy for a Value. Its fields are drawn by their types, unless a strategy is given."""
    of_fields = {name: st.from_type(hint) for name, hint in get_type_hints(kind).items() if name in kind.fields}
    return st.builds(kind, **{**of_fields, **given})


for kind in (Exit, File, Reach, Artifacts):
    st.register_type_strategy(kind, some(kind))
keys = st.sampled_from(["ssh-ed25519 AAAA+/9==", "ssh-rsa B"])
public_keys = st.lists(st.tuples(st.text(), keys)).map(tuple)
causes = some(Cause, code=st.integers(1, 255))
reports = some(
    Report, host=st.sampled_from(["algo-2", "algo-3"]), public_keys=public_keys, cause=st.none() | causes,
    cause_at=st.none() | times, stopping_at=st.none() | times, clock_error=times, rests=st.none() | times,
    exits=st.lists(st.tuples(st.text(), st.text(), times)).map(tuple),
)  # fmt: skip
outcomes = st.sampled_from([None, succeeded(), stopped()]) | causes.map(failed)
news = some(News, public_keys=public_keys, outcome=outcomes)


@given(reports, news)
def test_conversion_to_json_and_back_keeps_messages(report, tidings):
    assert report_from_json(parse(json.dumps(to_json(report)).encode()), {"algo-2", "algo-3"}) == report
    assert news_from_json(parse(json.dumps(to_json(tidings)).encode())) == tidings


@given(st.binary() | st.text().map(str.encode))
def test_any_bytes_are_parsed_or_refused(data):
    with contextlib.suppress(Refused):
        parse(data)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from([*GOOD, "outcome"]), inner),
    max_leaves=20,
)


@given(anything, st.booleans())
def test_any_message_is_read_or_refused(data, known):
    if isinstance(data, dict) and known:
        data = {**GOOD, **data, "protocol": PROTOCOL}
    for read_it in (lambda: report_from_json(data, {"algo-2", "algo-3"}), lambda: news_from_json(data)):
        with contextlib.suppress(Refused):
            read_it()
