"""Test that `entrypoint top` reports what is wrong with its address."""

import json
import socket
import threading

import pytest
from proxies import proxy

from entrypoint.base.errors import ConfigError
from entrypoint.observe.live.serve import STATE
from entrypoint.observe.live.top import show, source
from entrypoint.observe.live.view import View
from entrypoint.record.lines import line_of


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
def test_what_answers_is_no_job(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            link, _ = server.accept()
            with link:
                link.recv(1000)
                link.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(ConfigError, match="no live page of a job at http://127"):
            source(f"http://127.0.0.1:{server.getsockname()[1]}", {})()
        thread.join()


def test_no_proxy_is_asked_for_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    with proxy(answer=b"HTTP/1.1 502 Bad Gateway\r\n\r\n") as (url, asked):
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("http_proxy", url)
        monkeypatch.setattr("urllib.request._opener", None)  # which keeps the proxies of its first question
        with pytest.raises(ConfigError, match=r"no live page of a job at http://127\.0\.0\.1:1"):
            source("http://127.0.0.1:1", {})()
    assert not asked


def test_an_address_that_is_none() -> None:
    with pytest.raises(ConfigError, match="no live page of a job at http://localhost:abc"):
        source("http://localhost:abc", {})()


def test_that_the_hosts_train_apart_is_in_red(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    view = View()
    view.note("algo-1", line_of(["distributed", 120.0, False, {"words": "every host trains alone", "advice": "a"}]))
    view.note("algo-1", line_of(["outcome", 130.0, {"kind": "succeeded", "exit_code": 0, "cause": None}]))
    (tmp_path / STATE).write_text(json.dumps(view.state(130.0)))
    assert show(source(str(tmp_path), {}), once=True) == 0
    out = capsys.readouterr().out
    assert "\x1b[1;31merror: the hosts do not train together: every host trains alone: a" in out


def test_what_a_job_says_is_no_command_to_the_terminal(tmp_path, capsys):
    view, bad = View(), "\x9b31m\x1b]0;owned\x07\u202e\ud800"
    about = {"job": f"job{bad}", "mode": bad, "hosts": ["algo-1"], "coordinator": "algo-1", "cpus": 4}
    view.note("algo-1", line_of(["host", 1.0, about]))
    view.note("algo-1", line_of(["phase", 1.0, f"running{bad}"]))
    view.note("algo-1", line_of(["process", 1.0, f"script{bad}", {"role": "script"}]))
    view.note("algo-1", line_of(["metric", 1.0, f"script{bad}", {f"loss{bad}": 1.0}]))
    view.note("algo-1", line_of(["process", 1.0, "ps", {"role": "ps"}]))
    view.note("algo-1", line_of(["lines", 1.0, "ps", [f"line{bad}"]]))
    view.note("algo-1", line_of(["said", 1.0, f"said{bad}"]))
    (tmp_path / STATE).write_text(json.dumps(view.state(2.0)))
    assert show(source(str(tmp_path), {}), once=True) == 0
    shown = capsys.readouterr().out
    assert all(character.isprintable() for character in shown if character != "\n")
    assert "\\x9b31m\\x1b]0;owned" in shown


@pytest.mark.parametrize("text", ["{", "[1]", '{"hosts": {}}', "[" * 5000])
def test_a_state_that_is_none(tmp_path, text):
    (tmp_path / STATE).write_text(text)
    with pytest.raises(ConfigError, match="shows no job"):
        source(str(tmp_path), {})()
