"""Test `entrypoint top`: errors of its address, and the text of a running or ended job."""

import re
import time

import pytest
from proxies import proxy
from records import BEGAN, HostRecord, write

from entrypoint.base.errors import ConfigError
from entrypoint.observe.live.in_terminal import show, source


@pytest.mark.parametrize(
    "answer",
    [
        b"hello\n",  # no HTTP, such as a forwarded port of another service
        b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n<html></",
        b'HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n["job"]',
        b'HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n{"a": 1}',
        b'HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n{"hosts": 5}',
        b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + b"[" * 5000,
    ],
)
def test_answer_of_another_service_is_refused(answer: bytes) -> None:
    with proxy(answer=answer) as (url, asked), pytest.raises(ConfigError, match="no live page of a job at http://127"):
        source(url, {})()
    assert asked


def test_top_bypasses_proxies_for_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    with proxy(answer=b"HTTP/1.1 502 Bad Gateway\r\n\r\n") as (url, asked):
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("http_proxy", url)
        monkeypatch.setattr("urllib.request._opener", None)  # which keeps the proxies of its first question
        with pytest.raises(ConfigError, match=r"no live page of a job at http://127\.0\.0\.1:1"):
            source("http://127.0.0.1:1", {})()
    assert not asked


def test_impossible_address_is_refused() -> None:
    with pytest.raises(ConfigError, match="no live page of a job at http://localhost:abc"):
        source("http://localhost:abc", {})()


def test_separate_training_is_shown_in_red(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    record = _record("algo-1")
    record.add("distributed", 39, False, {"words": "every host trains alone", "advice": "a"})
    record.ends(40)
    assert show(source(str(write(tmp_path, record)), {}), once=True) == 0
    out = capsys.readouterr().out
    assert "\x1b[1;31merror: the hosts do not train together: every host trains alone: a" in out


def test_top_escapes_terminal_control_sequences(tmp_path, capsys):
    bad = "\x9b31m\x1b]0;owned\x07\u202e\ud800"
    record = HostRecord(job=f"job{bad}", mode=bad)
    record.add("phase", 1, f"running{bad}")
    record.add("process", 1, f"script{bad}", {"role": "script"})
    record.add("metric", 1, f"script{bad}", {f"loss{bad}": 1.0})
    record.add("process", 1, "ps", {"role": "ps"})
    record.add("lines", 1, "ps", [f"line{bad}"])
    record.add("said", 1, f"said{bad}")
    assert show(source(str(write(tmp_path, record)), {}), once=True) == 0
    shown = capsys.readouterr().out
    assert all(character.isprintable() for character in shown if character != "\n")
    assert "\\x9b31m\\x1b]0;owned" in shown


def _record(name: str, **about: object) -> HostRecord:
    record = HostRecord(name, 2, job="my-job", **about)
    record.runs("worker/0", 2, None)
    record.add("metric", 39, "worker/0", {"step": 30.0})
    return record


@pytest.mark.parametrize("outcome_of", ["algo-1", "algo-2"], ids=["coordinator", "the other, as it was lost"])
def test_top_shows_when_and_how_a_job_ended(tmp_path, capsys, monkeypatch, outcome_of):
    monkeypatch.setenv("COLUMNS", "80")
    folder = tmp_path / "algo-1/ml/output/data/record"
    cause = {"host": "algo-2", "process": "worker/1", "what": "exit code 1", "error": "ValueError: bad batch"}
    records = {name: _record(name) for name in ("algo-1", "algo-2")}
    records[outcome_of].ends(40, "failed", 1, cause)
    write(folder, *records.values())
    assert show(source(str(tmp_path), {}), once=True) == 0
    shown = capsys.readouterr().out
    ended = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(BEGAN + 40))
    assert shown.startswith(f"my-job · mode mwms · failed at {ended} after 40 s, exit code 1\n")
    assert "algo-2 worker/1 (exit code 1): ValueError: bad batch\n" in shown


def test_lost_host_of_an_ended_job_is_not_shown_as_running(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    records = {name: _record(name) for name in ("algo-1", "algo-2")}
    for record in records.values():
        record.add("phase", 3, "running")
    records["algo-1"].ends(40, "failed", 69, {"host": "algo-2", "process": "", "what": "does not answer"})
    write(tmp_path, *records.values())
    assert show(source(str(tmp_path), {}), once=True) == 0
    lost = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("algo-2") and "step" in line)
    assert lost.split()[:2] == ["algo-2", "lost"] and "no end recorded" in lost and "running" not in lost


@pytest.mark.parametrize("age, runs", [(30, True), (90, False)])
def test_age_of_records_shows_whether_the_job_runs(age, runs, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("entrypoint.record.lines.now", lambda: BEGAN + 39 + age)
    write(tmp_path, _record("algo-1"))
    assert show(source(str(tmp_path), {}), once=True) == 0
    last = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(BEGAN + 39))
    gone = f"no end in its records since {last}, 90 s ago: it may have been killed; it ran for 39 s"
    first = " ".join(capsys.readouterr().out.split("host", 1)[0].split())
    assert first == f"my-job · mode mwms · {'running for 39 s' if runs else gone}"


def test_top_of_an_ended_job_lists_what_trained_first_and_no_empty_columns(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    record = HostRecord(job="my-job")
    for name, role, how in (("prepare", "prepare", "exit code 0"), ("ps/0", "ps", "killed by SIGTERM"),
                            ("chief/0", "chief", "exit code 1")):  # fmt: skip
        record.runs(name, 1, 30, role, how)
    record.add("metric", 29, "chief/0", {"learning_rate": 0.03277, "step": 408.0, "loss": 0.25951, "accuracy": 0.8872})
    record.ends(40)
    assert show(source(str(write(tmp_path, record)), {}), once=True) == 0
    head, chief, more, ps, *_ = capsys.readouterr().out.splitlines()[2:]
    assert head.split() == ["host", "phase", "process", "said"]
    assert "chief/0  exit code 1; learning_rate=0.03277 step=408 loss=0.25951" in chief
    assert more.split() == ["accuracy=0.8872"] and ps.split() == ["ps/0", "killed", "by", "SIGTERM"]


def test_narrow_terminal_keeps_numbers_whole(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    record = _record("algo-1")
    record.sample(38, programs=12.3e9, processes={"worker/0": {"cpu": 3.25, "memory": 12_300_000_000}}, net=[99, 10**7])
    record.ends(40)
    write(tmp_path, record)
    assert show(source(str(tmp_path), {}), once=True) == 0
    assert re.search(r"worker/0 +3\.25 +12\.3 GB +step=30", capsys.readouterr().out)
