"""Test the evidence file: causes in order, exits of processes, last reports of hosts, last lines of processes."""

from pathlib import Path

from builders import read

from entrypoint.base.secrets import Secrets
from entrypoint.launcher import epilogue
from entrypoint.launcher.outcome import outcome, report
from entrypoint.launcher.outcome.outcome import Cause, Confidence, Exit
from entrypoint.launcher.plan.planner import plan_for
from entrypoint.launcher.policy.events import Report
from entrypoint.launcher.policy.facts import Facts

ROOT = Cause(host="algo-2", process="worker/1", what="exit code 3", error="ValueError: x", details="Traceback", code=3)
SYMPTOM = Cause(host="algo-1", process="worker/0", what="exit code 1", error="Socket closed", confidence=Confidence.LOW)


def facts(base: Path, me: str = "algo-1") -> Facts:
    """Return the facts of a failed job of three hosts: algo-2 failed first, algo-1 reported first, algo-3 was lost."""
    job = read(base, 3, {}, {"ENTRYPOINT_MODE": "mwms"}, me=me)
    found = Facts(plan_for(job), me, 100.0)
    found.note_cause(SYMPTOM, 105.5)
    found.note_cause(ROOT, 105.6, at=105.2)
    own = f"worker/{int(me[-1]) - 1}"
    found.own.note_started(found.own.specs[own], 101.0)
    found.own.note_ended(own, Exit(code=143, signal=15), 106.0)
    found.hosts.note_contact("algo-3", 102.0)
    found.hosts.note_report(Report(host="algo-2", exits=(("worker/1", "exit code 3", 4.9),), gone=True), 106.0)
    found.outcome, found.outcome_at = outcome.failed(ROOT), 106.0
    return found


def test_coordinators_evidence_file_has_causes_exits_hosts_and_last_lines(tmp_path):
    known = facts(tmp_path)
    text = epilogue.in_full(known, known.outcome, {"worker/0": "step 1\nstep 2\n"}, 107.0)
    assert text.splitlines() == [
        "job failed, exit code 3: algo-2 worker/1 (exit code 3): ValueError: x",
        "seen from algo-1, the coordinator; seconds are counted from its start, 7.0 s ago",
        "",
        "second  what went wrong",
        "5.200   algo-2 worker/1 (exit code 3): ValueError: x",
        "5.500   algo-1 worker/0 (exit code 1): Socket closed  (probably a symptom)",
        "",
        "second  process          how it ended",
        "6.000   algo-1 worker/0  killed by SIGTERM",
        "4.900   algo-2 worker/1  exit code 3",
        "",
        "host    last report",
        "algo-2  1.0 s ago    has left",
        "algo-3  5.0 s ago",
        "",
        "the end of the traceback, or of what was printed",
        "    Traceback",
        "",
        "last lines of worker/0",
        "    step 1",
        "    step 2",
    ]


def test_log_shows_the_evidence_without_last_lines(tmp_path):
    known = facts(tmp_path)
    short = epilogue.in_short(known, known.outcome)
    assert "5.200   algo-2 worker/1 (exit code 3): ValueError: x" in short
    assert "4.900   algo-2 worker/1  exit code 3" in short
    assert not any("last lines" in line for line in short)


def test_followers_evidence_file_refers_to_the_coordinators(tmp_path):
    known = facts(tmp_path, me="algo-3")
    text = epilogue.in_full(known, known.outcome, {}, 107.0)
    assert "algo-3 worker/2" in text
    assert "how the processes of other hosts ended is in the file of algo-1" in text


def test_evidence_file_has_the_causes_of_earlier_attempts(tmp_path):
    known = facts(tmp_path)
    known.begin_attempt(1)
    known.note_cause(ROOT, 120.0)
    text = epilogue.in_full(known, known.outcome, {}, 121.0)
    assert "0        5.200   algo-2 worker/1" in text and "1        20.000  algo-2 worker/1" in text


def test_size_of_the_evidence_file_is_bounded(tmp_path):
    known = facts(tmp_path)
    tails = {f"rank {n}": "x" * 100_000 for n in range(500)}
    text = epilogue.in_full(known, known.outcome, tails, 107.0)
    assert len(text) <= epilogue.LIMIT_CHARS
    assert text.count("last lines of rank") > 5


def test_log_of_a_single_process_has_no_table(tmp_path):
    job = read(tmp_path, 1)
    alone = Facts(plan_for(job), "algo-1", 100.0)
    cause = Cause(host="algo-1", process="script", what="exit code 3", code=3)
    alone.note_cause(cause, 105.0)
    assert epilogue.in_short(alone, outcome.failed(cause)) == []


def test_unwritable_evidence_file_is_reported(tmp_path):
    (tmp_path / "data").write_text("not a folder")
    assert "cannot be written" in report.write_evidence(tmp_path / "data" / "entrypoint-algo-1.txt", "text")


def test_secrets_in_the_evidence_file_are_masked(tmp_path):
    secret = Secrets({"MY_API_KEY": "s3cr3t-v4lue-42"}, {})
    report.write_evidence(tmp_path / "data" / "e.txt", "key s3cr3t-v4lue-42", secret)
    assert "s3cr3t" not in (tmp_path / "data" / "e.txt").read_text()
