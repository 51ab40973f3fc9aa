"""outcome.py, errors.py, report.py: how an end is explained, coded and written down."""

import dataclasses
import json
import os
import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entrypoint import report
from entrypoint.errors import ExitCode
from entrypoint.outcome import Cause, Exit, Kind, Outcome, Strength, clip, explain, failed, stopped, succeeded

BAD = Exit(code=1)
RAISED = """\
epoch 1
Traceback (most recent call last):
  File "/opt/ml/code/train.py", line 7, in <module>
    main()
  File "/opt/ml/code/train.py", line 4, in main
    raise ValueError("too small")
ValueError: too small
"""
CHAINED = """\
Traceback (most recent call last):
  File "train.py", line 2, in <module>
    open("x")
FileNotFoundError: [Errno 2] No such file or directory: 'x'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "train.py", line 4, in <module>
    raise RuntimeError("no data")
RuntimeError: no data
"""
SEVERAL_LINES = """\
Traceback (most recent call last):
  File "train.py", line 1, in <module>
    raise ValueError("first line\\nsecond line\\n\\n  third line")
ValueError: first line
second line

  third line
"""
ABORTED = (
    RAISED
    + """\
--------------------------------------------------------------------------
MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD
with errorcode 1.

NOTE: invoking MPI_ABORT causes Open MPI to kill all MPI processes.
You may or may not see output from other processes, depending on
exactly when Open MPI kills them.
--------------------------------------------------------------------------
"""
)
SYNTAX = """\
  File "/opt/ml/code/train.py", line 1
    def f(:
          ^
SyntaxError: invalid syntax
"""
INTERRUPTED = """\
Traceback (most recent call last):
  File "train.py", line 1, in <module>
    time.sleep(60)
KeyboardInterrupt
"""
EXPLAINED = {
    # what the process printed last, how it ended: the error line, a part of the details, how sure
    "exception": (RAISED, BAD, "ValueError: too small", "line 4, in main", "strong"),
    "chained": (CHAINED, BAD, "RuntimeError: no data", "line 4, in <module>", "strong"),
    "message of several lines": (SEVERAL_LINES, BAD, "ValueError: first line", "second line", "strong"),
    "MPI_ABORT's banner": (ABORTED, BAD, "ValueError: too small", "line 7", "strong"),
    "syntax error": (SYNTAX, BAD, "SyntaxError: invalid syntax", "def f(:", "strong"),
    "KeyboardInterrupt": (INTERRUPTED, Exit(code=130, signal=2), "KeyboardInterrupt", "time.sleep", "strong"),
    "sys.exit(text)": ("epoch 1\nno such channel: train\n", BAD, "no such channel: train", "epoch 1", "strong"),
    "sys.exit(3)": ("epoch 1\n", Exit(code=3), "epoch 1", "", "strong"),
    "nothing printed": ("", Exit(code=3), "", "", "strong"),
    "only lines of dashes": ("-----\n=====\n", BAD, "", "", "strong"),
    "segfault": ("epoch 1\n", Exit(code=139, signal=11), "", "epoch 1", "strong"),
    "carriage returns": (RAISED.replace("\n", "\r\n"), BAD, "ValueError: too small", "line 7", "strong"),
    "killed by SIGTERM": ("epoch 1\n", Exit(code=143, signal=15), "", "epoch 1", "weak"),
    "traceback cut at its head": (RAISED[30:], BAD, "ValueError: too small", "line 4", "strong"),
}  # fmt: skip


@pytest.mark.parametrize("output, exit, error, within, strength", EXPLAINED.values(), ids=EXPLAINED)
def test_explain(output, exit, error, within, strength):
    line, details, sure = explain(exit, output)
    assert (line, sure) == (error, strength)
    assert within in details


ECHOES = [
    "tensorflow.python.framework.errors_impl.UnavailableError: Socket closed",
    "tensorflow.python.framework.errors_impl.AbortedError: Collective ops is aborted by: peer down",
    "horovod.common.exceptions.HorovodInternalError: Horovod has been shut down.",
    "ConnectionResetError: [Errno 104] Connection reset by peer",
    "tensorflow.python.framework.errors_impl.DeadlineExceededError: timed out",
]


@pytest.mark.parametrize("error", ECHOES)
def test_what_reads_like_an_echo_is_weak(error):
    traceback = f'Traceback (most recent call last):\n  File "train.py", line 1\n{error}\n'
    assert explain(BAD, traceback)[0] == error
    assert explain(BAD, traceback)[2] is Strength.WEAK


def test_an_echo_in_an_earlier_line_weakens_nothing():
    assert explain(BAD, ECHOES[0] + "\n" + RAISED)[2] is Strength.STRONG


def test_programs_that_say_it_first():
    text = "There are not enough slots available\n\nEither request fewer\nfor more see the man page\n"
    assert explain(BAD, text, first_line=True)[0] == "There are not enough slots available"


@given(st.text(), st.integers(0, 255))
def test_explain_bears_any_output(output, code):
    error, details, _ = explain(Exit(code=code), output)
    assert len(error) <= 400 and "\n" not in error
    assert len(details) <= 2000


def test_exit_codes_are_unique_and_no_common_ones():
    codes = [int(code) for code in ExitCode]
    assert len(codes) == len(set(codes)) == len(ExitCode.__members__)  # members: aliases too
    assert not {1, 2, 126, 127, 137} & set(codes)
    assert all(0 <= code <= 255 for code in codes)


def wait_status(code: int = 0, signal: int = 0) -> int:
    return signal or code << 8


@pytest.mark.parametrize("code", range(256))
def test_every_exit_code_is_kept(code):
    exit = Exit.from_wait_status(wait_status(code))
    assert (exit.code, exit.signal, exit.clean, str(exit)) == (code, None, code == 0, f"exit code {code}")
    outcome = failed(Cause(host="h", process="p", what=str(exit), code=code))
    assert outcome.exit_code == (code or 1)


@pytest.mark.parametrize("number", [1, 2, 6, 9, 11, 15, 64])
def test_every_signal_is_128_more(number):
    exit = Exit.from_wait_status(wait_status(signal=number))
    assert (exit.code, exit.signal, exit.clean) == (128 + number, number, False)
    assert str(exit).startswith("killed by ")


def test_wait_statuses_are_the_kernels():
    for code, number in ((3, 0), (0, signal.SIGKILL)):
        pid = os.fork()
        if pid == 0:
            if number:
                os.kill(os.getpid(), number)
            os._exit(code)
        assert Exit.from_wait_status(os.waitpid(pid, 0)[1]) == Exit(code=code or 128 + number, signal=number or None)


@pytest.mark.parametrize("kind, code", [(Kind.FAILED, 0), (Kind.STOPPED, 0), (Kind.SUCCEEDED, 1)])
def test_no_failure_with_exit_code_0_and_no_success_with_another(kind, code):
    with pytest.raises(ValueError, match=str(kind)):
        Outcome(kind=kind, exit_code=code)


@pytest.mark.parametrize("code", [0, -1, 256, 10**9])
def test_a_cause_without_a_usable_code_still_fails(code):
    assert 0 < failed(Cause(host="h", process="p", what="w", code=code)).exit_code < 256


CAUSE = Cause(host="algo-2", process="worker/1", what="exit code 3", error="ValueError: x", details=RAISED, code=3)


def test_failure_text():
    text = failed(CAUSE).failure_text()
    assert text.splitlines()[0] == "algo-2 worker/1 (exit code 3): ValueError: x"
    assert text.endswith("ValueError: too small")
    nothing_known = Cause(host="algo-2", process="", what="lost: not heard for 5 s", code=69)
    assert failed(nothing_known).failure_text() == "algo-2 (lost: not heard for 5 s)"


@given(st.text(max_size=3000), st.text(max_size=5000), st.integers(min_value=0, max_value=1024))
def test_failure_text_keeps_the_limit_and_the_cause(error, details, limit):
    outcome = failed(dataclasses.replace(CAUSE, error=error, details=details))
    assert len(outcome.failure_text()) <= 1024
    assert outcome.failure_text().startswith("algo-2 worker/1 (exit code 3)")
    assert len(outcome.failure_text(limit)) <= max(limit, 3)


def test_failure_text_keeps_the_end_of_a_long_traceback():
    text = failed(dataclasses.replace(CAUSE, details="x" * 5000 + "\nValueError: the end")).failure_text()
    assert len(text) == 1024
    assert text.endswith("ValueError: the end")


causes = st.builds(
    Cause, host=st.text(), process=st.text(), what=st.text(), error=st.text(), details=st.text(),
    code=st.integers(1, 255), strength=st.sampled_from(Strength),
)  # fmt: skip


@given(st.one_of(st.just(succeeded()), st.just(stopped()), causes.map(failed)))
def test_json_there_and_back(outcome):
    assert Outcome.from_json(json.loads(json.dumps(outcome.to_json()))) == outcome


@pytest.mark.parametrize(
    "data",
    [None, [], "x", {}, {"kind": "failed"}, {"kind": "odd", "exit_code": 1, "cause": None},
     {"kind": "failed", "exit_code": 0, "cause": None}, {"kind": "failed", "exit_code": "x", "cause": None},
     {"kind": "failed", "exit_code": 1, "cause": {}}, {"kind": "failed", "exit_code": 1, "cause": "no"}],
)  # fmt: skip
def test_anything_else_is_refused(data):
    with pytest.raises((KeyError, TypeError, ValueError)):
        Outcome.from_json(data)


@pytest.mark.parametrize("limit", [0, 1, 3, 4, 10])
def test_clip(limit):
    assert len(clip("abcdefghijkl", limit)) <= max(limit, 3)
    assert clip("abc", 3) == "abc"


# --- the failure file ---


def test_failure_file(tmp_path):
    path = tmp_path / "output" / "failure"  # the folder is made
    assert report.write_failure(path, failed(CAUSE)) == ""
    assert path.read_text() == failed(CAUSE).failure_text()
    assert [p.name for p in path.parent.iterdir()] == ["failure"]  # no scratch file stays


@pytest.mark.parametrize("outcome", [succeeded(), stopped()])
def test_no_failure_file_without_a_failure(tmp_path, outcome):
    assert report.write_failure(tmp_path / "failure", outcome) == ""
    assert not (tmp_path / "failure").exists()


def test_the_scripts_own_failure_file_stays(tmp_path):
    (tmp_path / "failure").write_text("mine")
    assert "left as it is" in report.write_failure(tmp_path / "failure", failed(CAUSE))
    assert (tmp_path / "failure").read_text() == "mine"
    (tmp_path / "failure").write_text("")  # says nothing, so it is ours to fill
    report.write_failure(tmp_path / "failure", failed(CAUSE))
    assert "ValueError" in (tmp_path / "failure").read_text()


def test_a_failure_file_that_cannot_be_written_is_said_and_not_raised(tmp_path):
    (tmp_path / "output").write_text("a file where the folder should be")
    complaint = report.write_failure(tmp_path / "output" / "failure", failed(CAUSE))
    assert "cannot be written" in complaint and "ValueError: x" in complaint


def test_a_failure_text_that_utf8_cannot_hold_is_written_nevertheless(tmp_path):
    assert report.write_failure(tmp_path / "failure", failed(dataclasses.replace(CAUSE, error="\ud800"))) == ""
    assert (tmp_path / "failure").read_text().startswith("algo-2 worker/1 (exit code 3)")


def test_a_traceback_that_was_printed_long_before_is_not_why_the_kernel_killed():
    error, _, strength = explain(Exit(code=137, signal=9), RAISED + "handled, going on\nepoch 2\n")
    assert (error, strength) == ("", Strength.STRONG)
