"""Test that `entrypoint top` reports what is wrong with its address."""

import json
import os
import re
import time

import pytest
from proxies import proxy
from records import BEGAN, HostRecord, write

from entrypoint.base.errors import ConfigError
from entrypoint.observe.live import in_terminal
from entrypoint.observe.live.in_terminal import show, source
from entrypoint.observe.live.serve import STATE
from entrypoint.observe.live.view import View
from entrypoint.record.lines import line_of


@pytest.fixture
def shown(tmp_path, capsys):
    """Return a function that returns what is shown of a job whose records or state are in a folder."""

    def shown(view: View | None = None, at: float = 130.0) -> str:
        if view:
            (tmp_path / STATE).write_text(json.dumps(view.state(at)))
        assert show(source(str(tmp_path), {}), once=True) == 0
        return capsys.readouterr().out

    return shown


@pytest.mark.parametrize(
    "answer",
    [
        b"hello\n",  # no HTTP, such as a forwarded port of another service
        b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n<html></",
        b'HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n["job"]',
        b'HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n{"a": 1}',
        b'HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n{"hosts": 5}',
    ],
)
def test_an_answer_of_another_service_is_refused(answer: bytes) -> None:
    with proxy(answer=answer) as (url, asked), pytest.raises(ConfigError, match="no live page of a job at http://127"):
        source(url, {})()
    assert asked


def test_no_proxy_is_asked_for_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    with proxy(answer=b"HTTP/1.1 502 Bad Gateway\r\n\r\n") as (url, asked):
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("http_proxy", url)
        monkeypatch.setattr("urllib.request._opener", None)  # which keeps the proxies of its first question
        with pytest.raises(ConfigError, match=r"no live page of a job at http://127\.0\.0\.1:1"):
            source("http://127.0.0.1:1", {})()
    assert not asked


def test_an_impossible_address_is_refused() -> None:
    with pytest.raises(ConfigError, match="no live page of a job at http://localhost:abc"):
        source("http://localhost:abc", {})()


def test_that_the_hosts_train_apart_is_in_red(shown, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    view = View()
    view.note("algo-1", line_of(["distributed", 120.0, False, {"words": "every host trains alone", "advice": "a"}]))
    view.note("algo-1", line_of(["outcome", 130.0, {"kind": "succeeded", "exit_code": 0, "cause": None}]))
    assert "\x1b[1;31merror: the hosts do not train together: every host trains alone: a" in shown(view)


def test_what_a_job_says_is_no_command_to_the_terminal(shown):
    view, bad = View(), "\x9b31m\x1b]0;owned\x07\u202e\ud800"
    about = {"job": f"job{bad}", "mode": bad, "hosts": ["algo-1"], "coordinator": "algo-1", "cpus": 4}
    view.note("algo-1", line_of(["host", 1.0, about]))
    view.note("algo-1", line_of(["phase", 1.0, f"running{bad}"]))
    view.note("algo-1", line_of(["process", 1.0, f"script{bad}", {"role": "script"}]))
    view.note("algo-1", line_of(["metric", 1.0, f"script{bad}", {f"loss{bad}": 1.0}]))
    view.note("algo-1", line_of(["process", 1.0, "ps", {"role": "ps"}]))
    view.note("algo-1", line_of(["lines", 1.0, "ps", [f"line{bad}"]]))
    view.note("algo-1", line_of(["said", 1.0, f"said{bad}"]))
    out = shown(view, 2.0)
    assert all(character.isprintable() for character in out if character != "\n")
    assert "\\x9b31m\\x1b]0;owned" in out


@pytest.mark.parametrize("text", ["{", "[1]", '{"hosts": {}}', "[" * 5000])
def test_a_malformed_state_is_refused(tmp_path, text):
    (tmp_path / STATE).write_text(text)
    with pytest.raises(ConfigError, match="shows no job"):
        source(str(tmp_path), {})()


def _record(name: str, **about: object) -> HostRecord:
    record = HostRecord(name, 2, job="my-job", **about)
    record.runs("worker/0", 2, None)
    record.add("metric", 39, "worker/0", {"step": 30.0})
    return record


@pytest.mark.parametrize("left", [True, False], ids=["state of an earlier look", "no state"])
@pytest.mark.parametrize("outcome_of", ["algo-1", "algo-2"], ids=["coordinator", "the other, as it was lost"])
def test_of_an_ended_job_it_shows_when_and_how(tmp_path, shown, monkeypatch, left, outcome_of):
    monkeypatch.setenv("COLUMNS", "80")
    folder, view = tmp_path / "algo-1/ml/output/data/record", View()
    cause = {"host": "algo-2", "process": "worker/1", "what": "exit code 1", "error": "ValueError: bad batch"}
    records = {name: _record(name) for name in ("algo-1", "algo-2")}
    records[outcome_of].ends(40, "failed", 1, cause)
    write(folder, *records.values())
    if left:
        view.note("algo-1", line_of(["host", BEGAN, {"job": "my-job", "mode": "mwms"}]))
        (folder / STATE).write_text(json.dumps(view.state(BEGAN + 39)))
        os.utime(folder / STATE, (time.time() - 5, time.time() - 5))
    out = shown()
    ended = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(BEGAN + 40))
    assert out.startswith(f"my-job · mode mwms · failed at {ended} after 40 s, exit code 1\n")
    assert "algo-2 worker/1 (exit code 1): ValueError: bad batch\n" in out


@pytest.mark.parametrize("age, runs", [(30, True), (90, False)])
def test_without_the_monitors_state_the_age_of_the_records_decides(age, runs, tmp_path, shown, monkeypatch):
    monkeypatch.setattr(in_terminal, "FIRST_SECONDS", 0.1)
    monkeypatch.setattr("entrypoint.record.lines.now", lambda: BEGAN + 39 + age)
    write(tmp_path, _record("algo-1"))
    last = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(BEGAN + 39))
    gone = f"no end in its records since {last}, 0:01:30 h ago: it may have been killed; it ran for 39 s"
    first = " ".join(shown().split("host", 1)[0].split())
    assert first == f"my-job · mode mwms · {'running for 39 s' if runs else gone}"


def test_a_narrow_terminal_breaks_no_number(tmp_path, shown, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    record = _record("algo-1")
    record.sample(38, programs=12.3e9, processes={"worker/0": {"cpu": 3.25, "memory": 12_300_000_000}}, net=[99, 10**7])
    record.ends(40)
    write(tmp_path, record)
    assert re.search(r"worker/0 +3\.25 +12\.3 GB +step=30", shown())
