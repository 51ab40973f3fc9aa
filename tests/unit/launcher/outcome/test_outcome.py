"""Test outcome.py, errors.py, report.py: how an end is coded and written."""

import os
import re
import signal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from entrypoint.base.errors import ExitCode, clip
from entrypoint.base.values import replace
from entrypoint.launcher.job.settings import Settings
from entrypoint.launcher.outcome import report
from entrypoint.launcher.outcome.outcome import Cause, Exit, Kind, Outcome, failed, stopped, succeeded

DOCS = Path(__file__).resolve().parents[4] / "docs"


def test_exit_codes_are_unique_and_no_common_ones():
    codes = [int(code) for code in ExitCode]
    assert len(codes) == len(set(codes)) == len(ExitCode.__members__)  # members: aliases too
    assert not {1, 2, 126, 127, 137, *Settings().restart_codes} & set(codes)  # one code, one meaning
    assert all(0 <= code <= 255 for code in codes)


def test_every_code_of_ours_is_in_the_table_for_users_which_is_sorted():
    shown = [int(code) for code in re.findall(r"^\| (\d+) \|", (DOCS / "exit-codes.md").read_text(), re.MULTILINE)]
    assert {int(code) for code in ExitCode} <= {*shown}
    assert shown == sorted(shown)


def wait_status(code: int = 0, signal: int = 0) -> int:
    return signal or code << 8


def test_every_exit_code_is_kept():
    for code in range(256):
        exit = Exit.from_wait_status(wait_status(code))
        assert (exit.code, exit.signal, exit.clean, str(exit)) == (code, None, code == 0, f"exit code {code}")
        outcome = failed(Cause(host="h", process="p", what=str(exit), code=code))
        assert outcome.exit_code == (code or 1)


@pytest.mark.parametrize("number", [1, 2, 6, 9, 11, 15, 64])
def test_every_signal_is_128_more(number):
    exit = Exit.from_wait_status(wait_status(signal=number))
    assert (exit.code, exit.signal, exit.clean) == (128 + number, number, False)
    assert str(exit).startswith("killed by ")


def test_exit_is_read_from_a_wait_status_of_the_kernel():
    # Not forked: a copy of pytest whose exit goes wrong would go on with the tests.
    for command, exit in (("exit 3", Exit(code=3)), ("kill -KILL $$", Exit(code=137, signal=signal.SIGKILL))):
        pid = os.posix_spawn("/bin/sh", ["sh", "-c", command], {})
        assert Exit.from_wait_status(os.waitpid(pid, 0)[1]) == exit


@pytest.mark.parametrize("kind, code", [(Kind.FAILED, 0), (Kind.STOPPED, 0), (Kind.SUCCEEDED, 1)])
def test_no_failure_with_exit_code_0_and_no_success_with_another(kind, code):
    with pytest.raises(ValueError, match=str(kind)):
        Outcome(kind=kind, exit_code=code)


@pytest.mark.parametrize("code", [0, -1, 256, 10**9])
def test_a_cause_without_a_usable_code_still_fails(code):
    assert 0 < failed(Cause(host="h", process="p", what="w", code=code)).exit_code < 256


RAISED = 'Traceback (most recent call last):\n  File "train.py", line 7, in main\nValueError: too small'
CAUSE = Cause(host="algo-2", process="worker/1", what="exit code 3", error="ValueError: x", details=RAISED, code=3)


def test_failure_text_names_the_cause_first_and_ends_with_the_traceback():
    text = failed(CAUSE).failure_text()
    assert text.splitlines()[0] == "algo-2 worker/1 (exit code 3): ValueError: x"
    assert text.endswith("ValueError: too small")
    nothing_known = Cause(host="algo-2", process="", what="lost: no report for 5 s", code=69)
    assert failed(nothing_known).failure_text() == "algo-2 (lost: no report for 5 s)"


@settings(max_examples=30)  # long texts take long to draw
@given(st.text(max_size=3000), st.text(max_size=5000), st.integers(min_value=0, max_value=1024))
def test_failure_text_keeps_the_limit_and_the_cause(error, details, limit):
    outcome = failed(replace(CAUSE, error=error, details=details))
    assert len(outcome.failure_text()) <= 1024
    assert outcome.failure_text().startswith("algo-2 worker/1 (exit code 3)")
    assert len(outcome.failure_text(limit)) <= max(limit, 3)


def test_failure_text_keeps_the_end_of_a_long_traceback():
    text = failed(replace(CAUSE, details="x" * 5000 + "\nValueError: the end")).failure_text()
    assert len(text) == 1024
    assert text.endswith("ValueError: the end")


@pytest.mark.parametrize("limit", [0, 1, 3, 4, 10])
def test_clipped_text_keeps_the_limit(limit):
    assert len(clip("abcdefghijkl", limit)) <= max(limit, 3)
    assert clip("abc", 3) == "abc"


# --- the failure file ---


def test_failure_text_is_written_into_the_failure_file(tmp_path):
    path = tmp_path / "output" / "failure"  # the folder is made
    assert report.write_failure(path, failed(CAUSE)) == ""
    assert path.read_text() == failed(CAUSE).failure_text()
    assert [p.name for p in path.parent.iterdir()] == ["failure"]  # no scratch file stays


TEXT = failed(CAUSE).failure_text()
WRITTEN = {
    # what the script has written, the outcome: what is logged, and what the file begins with then
    "a success": (None, succeeded(), "", None),
    "a stop": (None, stopped(), "", None),
    "a file of the script's": ("mine", failed(CAUSE), "left as it is", "mine"),
    "an empty file, which says nothing": ("", failed(CAUSE), "", TEXT),
    "a text that UTF-8 cannot hold": (
        None, failed(replace(CAUSE, error="\ud800")), "", "algo-2 worker/1 (exit code 3)"),
}  # fmt: skip


@pytest.mark.parametrize("before, outcome, said, after", WRITTEN.values(), ids=WRITTEN)
def test_failure_file_has_the_cause_of_a_failure_unless_the_script_wrote_one(tmp_path, before, outcome, said, after):
    path = tmp_path / "failure"
    if before is not None:
        path.write_text(before)
    logged = report.write_failure(path, outcome)
    assert said in logged and bool(said) is bool(logged)
    assert path.exists() is (after is not None)
    assert after is None or path.read_text().startswith(after)


def test_a_folder_in_place_of_the_failure_file_hides_no_failure(tmp_path):
    (tmp_path / "failure").mkdir()
    (tmp_path / "failure" / "trace.txt").write_text("mine")
    said = report.write_failure(tmp_path / "failure", failed(CAUSE))
    assert "is a folder" in said and str(tmp_path / "failure-folder") in said
    assert (tmp_path / "failure").read_text().startswith(CAUSE.headline)
    assert (tmp_path / "failure-folder" / "trace.txt").read_text() == "mine"


def test_a_failure_file_that_cannot_be_written_is_reported_and_not_raised(tmp_path):
    (tmp_path / "output").write_text("a file where the folder should be")
    complaint = report.write_failure(tmp_path / "output" / "failure", failed(CAUSE))
    assert "cannot be written" in complaint and "ValueError: x" in complaint
    assert len(complaint.splitlines()) == 1  # the log has the rest


def test_only_a_success_leaves_the_marker_of_success(tmp_path):
    for outcome in (failed(CAUSE), stopped()):
        assert report.write_success(tmp_path / "success", outcome) == ""
    assert not (tmp_path / "success").exists()
    assert report.write_success(tmp_path / "success", succeeded()) == ""
    assert (tmp_path / "success").read_bytes() == b""


def test_a_marker_that_cannot_be_written_is_reported_and_not_raised(tmp_path):
    assert "cannot be written" in report.write_success(tmp_path / "no folder" / "success", succeeded())
