"""Test both ends of the launcher's link to its monitor, and restarts of a monitor that is killed or attacked."""

import json
import os
import signal
import socket
import time
from pathlib import Path

import pytest
from builders import read as job_of
from waiting import eventually

from entrypoint.launcher.plan.planner import plan_for
from entrypoint.observe.monitor import feed as feeds
from entrypoint.observe.monitor.feed import Feed
from entrypoint.observe.monitor.monitor import Messages
from entrypoint.observe.monitor.reporting import make_report
from entrypoint.record import lines
from entrypoint.record.lines import EndedLine, OutcomeLine, ProcessLine
from entrypoint.record.read import lines_of


def test_early_launcher_failure_leaves_record_timed_from_its_start(tmp_path):
    """For example, no thread is left: once, the launcher failed again by waiting for a listener that never started.

    The monitor starts later than fast programs, so that the page had no phase "start" for such a host.
    """
    job = job_of(tmp_path, 1)
    began = time.time() - 100
    feed = Feed(job, plan_for(job), time.monotonic() - 100)
    feed.record(OutcomeLine(kind="failed", exit_code=70, cause=None))
    assert feed.finish() == ""
    about, *_, last = lines_of((job.paths.records / "algo-1.jsonl.gz").read_bytes())
    assert abs(about.at - began) < 50 and about.host == "algo-1" and last.KIND == "outcome"


class Launcher:
    """The launcher's end of the link to a monitor."""

    def __init__(self, folder: Path, hosts: int = 1, **settings: str) -> None:
        self.job = job_of(folder, hosts, environment={f"ENTRYPOINT_{name}": value for name, value in settings.items()})
        self.said: list[str] = []
        self.events: list = []
        self.feed = Feed(self.job, plan_for(self.job), time.monotonic())
        self.feed.listen(self.events.append, self.say, self.said.append, lambda do, patience: do())
        self.feed.record(ProcessLine(process="script", pid=os.getpid(), role="script", task="script"))

    def say(self, words: str) -> None:
        self.said.append(words)
        self.feed.show("", f"{words}\n".encode())  # as the log does

    def says(self, words: str) -> None:
        eventually(lambda: any(words in line for line in self.said), within=60, what=f"{words}; said: {self.said}")

    def lines(self, kind: str) -> list[list]:
        path = self.job.paths.records / "algo-1.jsonl.gz"
        if path.exists():
            (path.parent / "watched").touch()  # then it writes every second
        found = lines_of(path.read_bytes()) if path.exists() else ()
        return [json.loads(line.to_json()) for line in found if kind == line.KIND]

    def has(self, kind: str, *values: object) -> None:
        eventually(lambda: any(line[2:] == [*values] for line in self.lines(kind)), within=60, what=f"{kind} {values}")

    def kill_the_monitor(self) -> None:
        os.kill(self.feed._pid, signal.SIGKILL)

    def ends(self, kind: str = "succeeded") -> str:
        self.feed.record(EndedLine(process="script", how="exit code 0"))
        self.feed.record(OutcomeLine(kind=kind, exit_code=0, cause=None))
        return self.feed.finish()


def test_no_output_line_or_mark_crashes_the_monitor(tmp_path):
    """These inputs once ended the monitor on every host. Slow metric expressions have their own test."""
    metrics = json.dumps([{"Name": "loss", "Regex": "loss(x)?"}, {"Name": "slow", "Regex": "(([a-z=0-9 .:]+)+)+!"}])
    launcher = Launcher(tmp_path, METRICS=metrics, EMF="Tests")
    eventually(launcher.job.paths.marks.exists, within=60)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as script:
        for step in ("Infinity", "NaN", "1" + "0" * 400, "[" * 5000):
            message = (
                f'{{"process": "script", "marks": {{}}, "metrics": {{"step": {step}}}, "weights": [{step}, 1, 1]}}'
            )
            script.sendto(message.encode(), str(launcher.job.paths.marks))
    for line in (b"step=nan loss=1", b"step=inf", b"Epoch 1/" + b"9" * 400, b"Epoch 1/" + b"9" * 5000, b"\xff\x9b\0"):
        launcher.feed.show("script", line + b"\n")
        launcher.feed.show("script\xff", line + b"\n")
    launcher.says("the expression of 'slow'")
    launcher.feed.show("script", b"step=7 accuracy=0.5\n")
    eventually(lambda: any(line[3].get("step") == 7 for line in launcher.lines("metric")), within=60)
    assert launcher.ends() == ""
    assert launcher.job.paths.report.exists()
    assert not [words for words in launcher.said if "fault" in words or "Traceback" in words]


def test_killed_monitor_is_restarted_and_its_record_continues(tmp_path, monkeypatch):
    """Times stay consistent although the host's clock was set half an hour forward after the launcher's start."""
    monkeypatch.setattr(lines, "ZERO", time.time() - time.monotonic() - 1800, raising=False)
    launcher = Launcher(tmp_path)
    launcher.feed.show("script", b"step=1 loss=1\n")
    launcher.has("metric", "script", {"step": 1.0, "loss": 1.0})
    launcher.kill_the_monitor()
    launcher.says("warning: the monitor of this host was killed by SIGKILL; it is restarted (1 of 3)")
    launcher.feed.record(ProcessLine(process="later", pid=os.getpid(), role="script", task="later"))
    eventually(lambda: launcher.feed._begun == 2 and launcher.feed._is_there, within=60)
    launcher.feed.show("script", b"step=2 loss=2\n")
    launcher.has("metric", "script", {"step": 2.0, "loss": 2.0})
    assert launcher.ends() == ""
    assert [line[2] for line in launcher.lines("process")] == ["script", "later"], "each is told once"
    assert [line[3]["step"] for line in launcher.lines("metric")] == [1.0, 2.0]
    assert any("is restarted" in line[2] for line in launcher.lines("said"))
    for kind in ("host", "process", "metric", "said", "outcome"):
        assert all(abs(line[1] - time.time() + 1800) < 900 for line in launcher.lines(kind)), kind
    assert launcher.job.paths.report.exists()


def test_monitor_killed_at_the_end_leaves_a_report(tmp_path):
    launcher = Launcher(tmp_path)
    launcher.has("process", "script", {"pid": os.getpid(), "role": "script", "task": "script"})
    launcher.kill_the_monitor()
    assert launcher.ends() == ""
    assert launcher.lines("outcome") and launcher.job.paths.report.exists()


def test_repeatedly_killed_monitor_fails_job_with_required_checks(tmp_path, monkeypatch):
    monkeypatch.setattr(feeds, "PAUSE", 0.0)
    launcher = Launcher(tmp_path, hosts=2, REQUIRE_DISTRIBUTED="true", HANG_ACTION="fail")
    for number in range(1, 5):
        eventually(lambda number=number: launcher.feed._begun == number and launcher.feed._is_there, within=60)
        launcher.kill_the_monitor()
    (found,) = eventually(lambda: launcher.events, within=60)
    assert (found.cause.host, found.cause.what, found.cause.code) == ("algo-1", "monitor", 70)
    *restarts, words = launcher.said
    killed = "warning: the monitor of this host was killed by SIGKILL"
    assert restarts == [f"{killed}; it is restarted ({number} of 3)" for number in (1, 2, 3)]
    assert words.startswith(f"{killed}, and is not restarted: recording has stopped, ")
    assert "ENTRYPOINT_HANG_ACTION=fail does nothing" in words
    assert "ENTRYPOINT_REQUIRE_DISTRIBUTED=true cannot be checked" in words and found.cause.error in words
    assert launcher.ends("failed") == ""
    assert launcher.lines("outcome") and launcher.job.paths.report.exists(), "of the record that is there"


def test_launcher_lines_keep_the_time_of_logging(tmp_path):
    launcher = Launcher(tmp_path)
    times = []
    for words in ("one", "two"):
        times.append(lines.now())
        launcher.say(words)
        time.sleep(0.02)
        times.append(lines.now())
    assert launcher.ends() == ""
    one, two = ((line[1], line[2]) for line in launcher.lines("said") if line[2] in ("one\n", "two\n"))
    assert (one[1], two[1]) == ("one\n", "two\n")
    assert times[0] - 0.001 <= one[0] <= times[1] and times[2] - 0.001 <= two[0] <= times[3]


def test_failed_monitor_start_is_logged_and_retried(tmp_path, monkeypatch):
    def no_process(*_: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    with monkeypatch.context() as patch:
        patch.setattr(feeds.spawn, "fork", no_process)
        launcher = Launcher(tmp_path)
    launcher.says("the monitor of this host cannot be started: [Errno 11] Resource temporarily unavailable")
    launcher.has("process", "script", {"pid": os.getpid(), "role": "script", "task": "script"})
    assert launcher.ends() == ""


def test_lost_records_are_not_recommended_for_reading(tmp_path):
    (words,) = make_report(tmp_path / "record", tmp_path / "gone/report.html", within=120)
    assert "the records are gone from" in words and "entrypoint report" not in words


# --- the monitor's end ---


@pytest.fixture
def pair():
    launcher, monitor = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with launcher, monitor:
        yield launcher, Messages(monitor)


def test_lines_of_a_process_arrive_together_and_in_order(pair):
    launcher, inbox = pair
    ended = b'["ended",1,"rank 0",0]'
    for message in (b"Lrank 0\0a\n", b"Lrank 1\0x\n", b"Lrank 0\0b\n", ended, b"Urank 1\0" + b"70", b"Lrank 1\0y\n"):
        launcher.send(message)
    assert list(inbox.take()) == [
        (b"L", "rank 0", b"a\nb\n"),
        (b"L", "rank 1", b"x\n"),
        (b"[", "", ended),
        (b"U", "rank 1", b"70"),
        (b"L", "rank 1", b"y\n"),
    ]
    assert not inbox.ended, "it may say more"
    assert list(inbox.take()) == []


def test_end_event_arrives_after_all_earlier_events(pair):
    launcher, inbox = pair
    launcher.send(b"Lrank 0\0last\n")
    launcher.shutdown(socket.SHUT_WR)
    assert list(inbox.take()) == [(b"L", "rank 0", b"last\n")]
    assert inbox.ended
