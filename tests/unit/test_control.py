"""wire.py and control.py. The Flask application through its test client; messages as JSON there and back."""

import json
import queue

import pytest
from builders import read
from hypothesis import given
from hypothesis import strategies as st

from entrypoint.cluster import Cluster, Host
from entrypoint.control import MAX_MESSAGE, TOKEN_HEADER, make_app
from entrypoint.events import Informed, News, Report, Reported
from entrypoint.outcome import Cause, failed, stopped, succeeded
from entrypoint.wire import PROTOCOL, Refused, news_from_json, news_to_json, report_from_json, report_to_json

ADDRESS = {"algo-1": "127.44.0.1", "algo-2": "127.44.0.2", "algo-3": "127.44.0.3"}
HOSTS = tuple(Host(name=name, rank=rank, address=address) for rank, (name, address) in enumerate(ADDRESS.items()))
CLUSTER = Cluster(hosts=HOSTS, me=HOSTS[0])
CAUSE = Cause(host="algo-2", process="worker/0", what="exit code 1", error="ValueError: x", code=1)
REPORT = Report(
    host="algo-2", ready=frozenset({"prepare"}), cards=(("known_hosts", "algo-2 ssh-ed25519 A"),), done=True,
    clean=False, cause=CAUSE,
)  # fmt: skip
NEWS = News(
    ready=frozenset({("*", "prepare"), ("algo-1", "chief/0")}),
    cards=(("k", "v"),),
    stopping=True,
    outcome=failed(CAUSE),
)


class Served:
    """The application of algo-1, and what it puts into the queue."""

    def __init__(self, token: str = "", news: News = NEWS, me: str = "algo-1") -> None:
        self.events: list = []
        self.status = lambda: {"phase": "running"}
        cluster = Cluster(hosts=HOSTS, me=next(host for host in HOSTS if host.name == me))
        app = make_app(cluster, token, self.events.append, lambda: self.status(), lambda: news)
        self.client = app.test_client()

    def call(self, path: str, body=None, *, caller: str = "algo-2", method: str = "POST", **options):
        address = ADDRESS.get(caller, caller)
        options.setdefault("data" if isinstance(body, (str, bytes)) else "json", body)
        if isinstance(body, (str, bytes)):
            options.setdefault("content_type", "application/json")
        return self.client.open(path, method=method, environ_base={"REMOTE_ADDR": address}, **options)


def test_a_report_is_answered_with_the_news():
    served = Served()
    answer = served.call("/report", report_to_json(REPORT))
    assert answer.status_code == 200
    assert news_from_json(answer.get_json()) == NEWS
    assert served.events == [Reported(report=REPORT)]


def test_news_are_taken_from_the_coordinator():
    served = Served(me="algo-2")
    assert served.call("/news", news_to_json(NEWS), caller="algo-1").status_code == 200
    assert served.events == [Informed(news=NEWS)]


GOOD = report_to_json(REPORT)
BAD_REPORTS = {
    # body: what the answer has to say
    "another protocol": ({**GOOD, "protocol": PROTOCOL + 1}, "must run the same image"),
    "no protocol": ({k: v for k, v in GOOD.items() if k != "protocol"}, "malformed"),
    "not a host of the job": ({**GOOD, "host": "algo-9"}, "'algo-9' is not a follower"),
    "the coordinator itself": ({**GOOD, "host": "algo-1"}, "'algo-1' is not a follower"),
    "another host's name": ({**GOOD, "host": "algo-3"}, "127.44.0.2 is not algo-3"),
    "missing field": ({k: v for k, v in GOOD.items() if k != "done"}, "malformed"),
    "wrong type": ({**GOOD, "ready": 5}, "malformed"),
    "wrong cards": ({**GOOD, "cards": [["one"]]}, "malformed"),
    "wrong cause": ({**GOOD, "cause": {"host": "algo-2"}}, "malformed"),
    "cause without number": ({**GOOD, "cause": {**GOOD["cause"], "code": "x"}}, "malformed"),
    "cause with an infinite number": ({**GOOD, "cause": {**GOOD["cause"], "code": float("inf")}}, "malformed"),
    "a list": ([1, 2], "malformed"),
    "a text": ('"hello"', "malformed"),
    "a number": ("5", "malformed"),
    "null": ("null", "wanted a JSON object"),
    "nothing": ("", "wanted a JSON object"),
    "not JSON": ("{", "wanted a JSON object"),
    "not text": (b"\xff\xfe\x00", "wanted a JSON object"),
}


@pytest.mark.parametrize("body, said", BAD_REPORTS.values(), ids=BAD_REPORTS)
def test_bad_reports_are_refused_and_change_nothing(body, said):
    served = Served()
    answer = served.call("/report", body)
    assert answer.status_code == 400
    assert said in answer.get_json()["error"]
    assert served.events == []


BAD_NEWS = {
    "success with exit code 1": {**news_to_json(NEWS), "outcome": {"kind": "succeeded", "exit_code": 1, "cause": None}},
    "failure with exit code 0": {**news_to_json(NEWS), "outcome": {"kind": "failed", "exit_code": 0, "cause": None}},
    "odd kind": {**news_to_json(NEWS), "outcome": {"kind": "maybe", "exit_code": 1, "cause": None}},
    "another protocol": {**news_to_json(NEWS), "protocol": "1"},
    "wrong ready": {**news_to_json(NEWS), "ready": [1]},
}


@pytest.mark.parametrize("body", BAD_NEWS.values(), ids=BAD_NEWS)
def test_bad_news_are_refused(body):
    served = Served(me="algo-2")
    assert served.call("/news", body, caller="algo-1").status_code == 400
    assert served.events == []


def test_news_from_a_follower_are_refused():
    served = Served(me="algo-2")
    assert served.call("/news", news_to_json(NEWS), caller="algo-3").status_code == 400
    assert served.events == []


@pytest.mark.parametrize("path, method", [("/report", "POST"), ("/news", "POST"), ("/status", "GET"), ("/x", "GET")])
@pytest.mark.parametrize("caller", ["10.1.2.3", "127.44.0.9", "::1", "127.0.0.1", ""])
def test_strangers_are_turned_away(path, method, caller):
    served = Served()
    answer = served.call(path, GOOD if method == "POST" else None, caller=caller, method=method)
    if method == "GET" and caller in ("127.0.0.1", "::1"):  # people on the host itself may look
        assert answer.status_code == (200 if path == "/status" else 404)
    else:
        assert answer.status_code == 403
    assert served.events == []


def test_a_name_that_resolves_late_is_a_host_from_then_on(monkeypatch):
    known: dict[str, str] = {}

    def look_up(name, *_, **__):
        if name not in known:
            raise OSError("no such name")
        return [(2, 1, 6, "", (known[name], 0))]

    monkeypatch.setattr("entrypoint.control.socket.getaddrinfo", look_up)
    served = Served()
    assert served.call("/report", GOOD).status_code == 403
    known[ADDRESS["algo-2"]] = ADDRESS["algo-2"]
    from waiting import eventually

    eventually(lambda: served.call("/report", GOOD).status_code == 200, within=10)


@pytest.mark.parametrize("shown, code", [("right", 200), ("wrong", 401), ("", 401), ("r\u00efght", 401), (None, 401)])
def test_token(shown, code):
    served = Served(token="right")
    headers = {} if shown is None else {TOKEN_HEADER: shown}
    assert served.call("/report", GOOD, headers=headers).status_code == code
    assert len(served.events) == (code == 200)
    assert served.call("/status", method="GET", headers=headers).status_code == code


def test_too_much_is_not_read():
    served = Served()
    assert served.call("/report", {**GOOD, "host": "x" * (MAX_MESSAGE + 1)}).status_code in (400, 413)
    assert served.events == []


def test_json_that_is_too_deep_does_no_harm():
    served = Served()
    assert served.call("/report", "[" * 200_000).status_code == 400
    assert served.events == []


def test_status():
    served = Served()
    answer = served.call("/status", method="GET")
    assert (answer.status_code, answer.get_json()) == (200, {"phase": "running"})

    def busy():
        raise queue.Empty

    served.status = busy
    assert served.call("/status", method="GET").status_code == 503
    assert served.call("/status").status_code == 405


def test_a_token_of_the_settings_reaches_the_application(tmp_path):
    assert read(tmp_path, 2, {"sagemaker_entrypoint_token": '"abc"'}).settings.token == "abc"


texts = st.text(max_size=20)
pairs = st.tuples(texts, texts)
reports = st.builds(
    Report, host=st.sampled_from(["algo-2", "algo-3"]), ready=st.frozensets(texts), cards=st.lists(pairs).map(tuple),
    done=st.booleans(), clean=st.booleans(), stopping=st.booleans(), cause=st.sampled_from([None, CAUSE]),
    gone=st.booleans(),
)  # fmt: skip
news = st.builds(
    News, ready=st.frozensets(pairs), cards=st.lists(pairs).map(tuple), stopping=st.booleans(),
    outcome=st.sampled_from([None, succeeded(), stopped(), failed(CAUSE)]),
)  # fmt: skip


@given(reports, news)
def test_messages_there_and_back(report, tidings):
    assert report_from_json(json.loads(json.dumps(report_to_json(report))), CLUSTER) == report
    assert news_from_json(json.loads(json.dumps(news_to_json(tidings)))) == tidings


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from([*GOOD, "outcome"]), inner),
    max_leaves=20,
)


@given(anything, st.booleans())
def test_no_message_whatever_is_worse_than_refused(data, known):
    if isinstance(data, dict) and known:
        data = {**GOOD, **data, "protocol": PROTOCOL}
    for parse in (lambda: report_from_json(data, CLUSTER), lambda: news_from_json(data)):
        try:
            parse()
        except Refused:
            pass
