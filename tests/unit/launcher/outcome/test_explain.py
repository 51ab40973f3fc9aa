"""Test explain.py and its helpers, which find in the last output of a process why the process failed.

endings/ holds recorded outputs with the failure texts wanted for them, in the form that recorded.py describes:

- frameworks.txt: real programs that failed, or that noticed another one fail, under TensorFlow 2.14, Horovod 0.28,
  Open MPI 4.1 and CPython 3.11; "gpu" under TensorFlow 2.21 on an H100.
- libraries.txt: programs of a few lines under CPython 3.11, with the libraries of late 2026: argument parsers,
  experiment trackers, loggers, crashes, MPI, other processes and threads.
- first_lines.txt: endings as people see them. TensorFlow 2.14, JAX 0.10 and CPython 3.11 printed most of it, without
  the frames of libraries and log lines below errors.
- texts.txt: messages of programs that are not at hand here, written after their source code.

Paths and addresses are those of a job.
"""

import random
import re

import pytest
from growth import grows_no_faster_than_its_input
from hypothesis import given
from hypothesis import strategies as st
from recorded import RECORDED, kept, killed

from entrypoint.launcher.outcome.explain import dying, explain, explain_mpirun
from entrypoint.launcher.outcome.native import lost_child
from entrypoint.launcher.outcome.outcome import Confidence, Exit
from entrypoint.launcher.outcome.symptoms import reads_like_symptom
from entrypoint.launcher.outcome.tracebacks import tracebacks

BAD = Exit(code=1)
TF = "tensorflow.python.framework.errors_impl."
BATCH = "ValueError: bad batch 7"
STRONG, WEAK = Confidence.HIGH, Confidence.LOW
USERS_FILE = "/opt/ml/code/train.py"
# Endings whose details name another place: the cell of a notebook; the last lines, long after a thread's exception.
ELSEWHERE = {"nbconvert", "papermill", "thread long ago"}


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_ending_is_explained(name):
    ending = RECORDED[name]
    found = ending.explained()
    wanted = ending.wanted.removesuffix(" ...")
    assert found.error == wanted or (wanted != ending.wanted and found.error.startswith(wanted)), found.error
    assert found.confidence == ending.confidence
    assert [text for text in ending.within if text not in found.details] == []
    if ending.file != "texts" and name not in ELSEWHERE and "Traceback" in ending.output:
        assert USERS_FILE in found.details or USERS_FILE not in ending.output
    announcing = ("stack traces unavailable", "Graph execution error", "in user code", "root error", "Detected at node")
    assert not any(words in found.error for words in announcing)
    if ending.exit is None and found.error:
        assert found.error not in found.details


@pytest.mark.parametrize(
    "name", ["rich deep path", "rich handler", "rich ascii", "ipython", "papermill", "json logger"]
)
def test_details_contain_no_boxes_or_escapes(name):
    details = RECORDED[name].explained().details
    assert 'File "' in details and "─" not in details and "\\n" not in details


RAISED = """\
epoch 1
Traceback (most recent call last):
  File "/opt/ml/code/train.py", line 7, in <module>
    main()
  File "/opt/ml/code/train.py", line 4, in main
    raise ValueError("bad batch 7")
ValueError: bad batch 7
"""


@pytest.mark.parametrize(
    "text",
    [RAISED.replace("\n", "\r\n"), RAISED.replace("ValueError", "\x1b[1;35mValueError\x1b[0m")],
    ids=["carriage returns", "colours"],
)
def test_explanation_ignores_carriage_returns_and_colours(text):
    found = explain(BAD, text)
    assert found.error == BATCH and "line 7" in found.details and found.confidence is STRONG


def test_details_omit_frames_of_the_mpi4py_runner():
    runner = (
        '  File "<frozen runpy>", line 198, in _run_module_as_main\n'
        '  File "/opt/venv/lib/python3.11/site-packages/mpi4py/run.py", line 53, in run_command_line\n'
        '    run_path(sys.argv[0], run_name="__main__")\n'
    )
    text = RAISED.replace("call last):\n", "call last):\n" + runner)
    assert explain(BAD, text) == explain(BAD, RAISED)


def test_details_of_long_message_have_traceback_beginning_and_end():
    text = RECORDED["a message of 300 lines"].output
    details = explain(BAD, text).details
    assert details.splitlines()[:3] == text.splitlines()[1:4]
    assert details.endswith("}) with an unsupported type (X)") and len(details.splitlines()) < 15


def test_line_before_stacks_of_many_threads_is_the_error():
    stacks = 'Thread 0x1 (most recent call first):\n  File "a.py", line 3 in f\n\n' * 60
    assert explain(BAD, kept(f"Timeout (0:10:00)!\n{stacks}")).error == "Timeout (0:10:00)!"


# --- what is printed after an exception that left the program ---

CAUGHT = RAISED.replace("in <module>", "in run")
WANDB = "".join(
    f"wandb: {line}\n"
    for line in [
        "", "Run history:", *(f"val/metric_{n} ▁▂▃▄▅▆▇█" for n in range(20)), "", "Run summary:",
        *(f"val/metric_{n} 0.{n}" for n in range(20)), "", "🚀 View run calm-sun-7 at: https://wandb.ai/a/b/runs/c",
        "⭐️ View project at: https://wandb.ai/a/b", "Synced 5 W&B file(s), 0 media file(s)",
        "Find logs at: ./wandb/run-20261127_131044-c/logs",
    ]
)  # fmt: skip
MLFLOW = "🏃 View run calm-sun at: http://mlflow:5000/#/experiments/0/runs/c\n🧪 View experiment at: http://mlflow:5000/#/e/0\n"
AFTERWARDS = {
    "wandb": WANDB,
    "MLflow": MLFLOW,
    "a tracker of 2,000 metrics": "".join(f"COMET INFO:   val/metric_{n} [30] : (-0.9, 0.9)\n" for n in range(2000)),
    "lines of anything": "".join(f"tracker: val/metric_{n} 0.{n}\n" for n in range(400)),
    "log lines of TensorFlow": "2026-11-27 13:19:56.474498: W tensorflow/core/kernels/x.cc:98] cancelled\n" * 2000,
    "a thread's exception": RECORDED["thread at exit"]
    .output.partition("bad batch 7\n")[2]
    .partition("bad batch 7\n")[2],
    "an abort of a destructor": "terminate called without an active exception\nAborted (core dumped)\n",
}


@pytest.mark.parametrize("after", AFTERWARDS)
@pytest.mark.parametrize("exit", [BAD, Exit(code=120), killed(6), Exit(code=134)], ids=str)
def test_lines_printed_at_exit_are_not_the_reason(exit, after):
    found = explain(exit, kept(RAISED + AFTERWARDS[after]))
    assert found.error == BATCH and "line 4, in main" in found.details
    assert found.confidence is STRONG


@pytest.mark.parametrize("after", ["wandb", "MLflow"])
def test_closing_lines_of_experiment_trackers_are_not_the_failure_reason(after):
    bye = AFTERWARDS[after]
    assert explain(BAD, CAUGHT + bye).error == BATCH
    assert explain(BAD, f"no channel: train\n{bye}").error == "no channel: train"
    assert explain(Exit(code=2), f"usage: a.py\na.py: error: no --lr\n{bye}").error == "a.py: error: no --lr"
    assert explain(BAD, bye).error == ""
    assert explain(BAD, f"wandb: ERROR no API key\n{bye}").error == "wandb: ERROR no API key"
    # It has not ended yet, and its peers feel that it will.
    found = dying(RAISED + bye)
    assert found and found.error == BATCH


def test_exhausted_memory_is_named_despite_later_tracker_lines():
    ending = RECORDED["TensorFlow, memory of a GPU"]
    assert explain(BAD, kept(ending.output + 9 * WANDB)).error == ending.wanted


# --- symptoms ---

MANAGER = (
    '  File "/usr/lib/python3.11/multiprocessing/connection.py", line 399, in _recv\n    raise EOFError\nEOFError\n'
)
CHILDREN = {
    RECORDED["process pool broken"].output: True,
    MANAGER: True,
    "RuntimeError: DataLoader worker (pid 41) is killed by signal: Killed. \n": True,
    "RuntimeError: DataLoader worker (pid(s) 41, 42) exited unexpectedly\n": True,
    "joblib.externals.loky.process_executor.TerminatedWorkerError: A worker process\n": True,
    "subprocess.CalledProcessError: Command 'a.sh' died with <Signals.SIGKILL: 9>.\n": True,
    "subprocess.CalledProcessError: Command 'a.sh' returned non-zero exit status 137.\n": True,
    "x86_64-linux-gnu-gcc: fatal error: Killed signal terminated program cc1plus\n": True,
    "a.sh: line 3:    71 Killed                  python3 rows.py\n": True,
    "loader ended with exit code -9\n": True,
    RECORDED["socket reset"].output: False,
    RECORDED["pickle eof"].output: False,
    RECORDED["horovod victim"].output: False,
    RECORDED["mwms victim of kill"].output: False,
    "subprocess.CalledProcessError: Command 'a.sh' returned non-zero exit status 1.\n": False,
    "loss at step 137: 9\n": False,
}


@pytest.mark.parametrize("text", CHILDREN)
def test_loss_of_a_child_process_is_recognised(text):
    """After such a loss, the launcher reads the kernel's counter of out-of-memory kills, which is of the whole host."""
    assert lost_child(text) == CHILDREN[text]


GLOO = "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:598] Connection closed by peer [10.0.1.2]:2222"
SYMPTOMS = {
    # TensorFlow
    f"{TF}UnavailableError": "Socket closed",
    f"{TF}AbortedError": "The same RecvTensor (WorkerServiceImpl) request was received twice.",
    f"{TF}CancelledError": "RPC Request was cancelled",
    f"{TF}DeadlineExceededError": "Deadline Exceeded",
    f"{TF}FailedPreconditionError": "Session has been closed.",
    f"{TF}InternalError": "Cluster check alive failed",
    "tensorflow.python.distribute.coordinator.cluster_coordinator.PSUnavailableError": "",
    # Horovod, PyTorch
    "horovod.common.exceptions.HorovodInternalError": "HorovodAllreduce failed",
    "jax.errors.JaxRuntimeError": "DEADLINE_EXCEEDED: Barrier timed out. Id: Shutdown::3740260532475326021::0.",
    "JaxRuntimeError": "UNKNOWN: Gloo context initialization failed: [external/gloo] Connect timeout [10.0.1.2]:41",
    "torch.distributed.DistBackendError": "NCCL communicator was aborted on rank 1.",
    "RuntimeError": GLOO,
    "torch.distributed.elastic.X": "NCCL WARN Call to recv failed; ncclRemoteError: remote process exited or there was"
    " a network error.",
    # mpi4py, the standard library
    "mpi4py.MPI.Exception": "MPI_ERR_PROC_FAILED: Process Failure",
    "BrokenPipeError": "[Errno 32] Broken pipe",
    "OSError": "[Errno 113] No route to host",
    "http.client.RemoteDisconnected": "Remote end closed connection without response",
    "asyncio.exceptions.IncompleteReadError": "0 bytes read on a total of 4 expected bytes",
    "socket.timeout": "timed out",
    "ssl.SSLEOFError": "EOF occurred in violation of protocol",
    "": "error: lost a peer: EOFError()",
}


@pytest.mark.parametrize("name", SYMPTOMS)
def test_symptom_is_recognised(name):
    assert reads_like_symptom(name, SYMPTOMS[name])


@pytest.mark.parametrize(
    "name, message",
    [
        ("ValueError", "bad loss"), ("FileNotFoundError", "[Errno 2] No such file or directory: '/x'"),
        ("PermissionError", "[Errno 13] Permission denied"), ("OSError", "[Errno 28] No space left on device"),
        ("EOFError", "EOF when reading a line"), (f"{TF}InvalidArgumentError", "Incompatible shapes"),
        (f"{TF}ResourceExhaustedError", "OOM when allocating"), (f"{TF}OutOfRangeError", "End of sequence"),
        ("jax.errors.JaxRuntimeError", "UNKNOWN: Gloo all-reduce failed: op.preamble.length <= op.nbytes. 40 vs 4"),
        ("RuntimeError", "CUDA error: an illegal memory access was encountered"), ("MemoryError", ""),
        ("botocore.exceptions.ClientError", "An error occurred (403) when calling the HeadObject operation: Forbidden"),
        ("", "no such channel: train"), ("", "epoch 3: connections 4, peers 7"),
    ],
)  # fmt: skip
def test_original_failure_is_not_taken_for_a_symptom(name, message):
    assert not reads_like_symptom(name, message)


# --- whatever is printed ---


@given(st.text(), st.integers(0, 255), st.sampled_from([None, 1, 2, 6, 9, 11, 13, 15, 64]))
def test_explanation_of_any_output_is_bounded(text, code, number):
    error, details, _ = explain(Exit(code=code, signal=number), text)
    assert len(error) <= 400 and len(error.splitlines()) <= 1
    assert len(details) <= 2000
    error, details, _ = explain_mpirun(text)
    assert len(error) <= 400 and len(error.splitlines()) <= 1


PIECES = [
    "Traceback (most recent call last):", "  + Exception Group Traceback (most recent call last):", "  | ", "    | ",
    '  File "a.py", line 1, in <module>', '  File "a.py", line 1', "    x()", "ValueError: x", "ValueError", "",
    "  +-+---------------- 1 ----------------", "    +------------------------------------", "", "x",
    "During handling of the above exception, another exception occurred:", "Exception ignored in: <x>", "[rank0]: ",
    "The above exception was the direct cause of the following exception:", "ValueError: in user code:", "Killed",
    "Graph execution error:", "Fatal Python error: x", "*** Process received signal ***", "\x1b[1m", "F0",
    "╭─ Traceback (most recent call last) ─╮", "╭─ Error ─╮", "│ a.py:3 in f │", "│ ❱ 3 x │", "╰────────────╯",
    "ValueError   Traceback (most recent call last)", "File a.py:3", "-" * 70, "wandb: x", "usage: x", "x: error: y",
    '{"a": "Traceback (most recent call last):\\nValueError: x"}', "Set the environment variable HYDRA_FULL_ERROR=1 x",
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=30), st.sampled_from(["\n", "\n", ""]), st.sampled_from([1, 3, 139]))
def test_pieces_of_tracebacks_in_any_order_are_explained(pieces, between, code):
    text = between.join(pieces)
    error, details, _ = explain(Exit(code=code), text)
    assert len(error.splitlines()) <= 1 and len(details) <= 2000
    for chain in tracebacks(text.splitlines()):
        assert all(raised.name and raised.first <= raised.last for raised in chain)


@pytest.mark.parametrize("name", [name for name, ending in RECORDED.items() if ending.file == "frameworks"])
def test_output_cut_anywhere_is_explained(name):
    """Only the last output is kept. The rest of a traceback is read, and the exception's own line is enough."""
    ending, exit = RECORDED[name], RECORDED[name].exit or BAD
    text = ending.output
    for at in random.Random(name).sample(range(len(text)), min(25, len(text))):
        explain(exit, text[at:])
    if exit == BAD and ending.confidence == STRONG and text.count("Traceback") == 1 and not text.startswith("  "):
        head = text.index("Traceback")
        known = re.sub(r": \S+ asked for, .* in use", "", ending.wanted)  # without what an allocator told before
        assert explain(exit, text[head + 12 :]).error == known


LAST_WORDS = (
    'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\n    step()\nValueError: bad row\n'
)
RUNNING = {
    # what a program that still runs has printed: why it is about to end
    "an exception that left it": (f"step 1\n{LAST_WORDS}", "ValueError: bad row"),
    "nothing special": ("step 1\nstep 2\n", None),
    "an exception that it got over": (f"{LAST_WORDS}step 2\n", None),
    "an exception inside of a function": (LAST_WORDS.replace("<module>", "step"), None),
    "a symptom of another": (LAST_WORDS.replace("ValueError: bad row", "ConnectionResetError: peer"), None),
    "nothing": ("", None),
}


@pytest.mark.parametrize("output, error", RUNNING.values(), ids=RUNNING)
def test_running_program_that_is_about_to_end_is_recognised(output, error):
    found = dying(output)
    assert (found and found.error) == error


FRAME = '  File "/opt/ml/code/train.py", line 1, in b\n'
LONG = [
    "\n", FRAME, "\n" * 30 + FRAME, "Traceback (most recent call last):\n  \n", "NCCL error", ": Assertion `",
    ": line 1: 1 ", "a.", "a", "\x1b[", "\x1b]a", "Connection ",
    "  + Exception Group Traceback (most recent call last):\n",
    f"Traceback (most recent call last):\n{FRAME}KeyError: ([{{\n",
    "Exception ignored in: x\nTraceback (most recent call last):\n",
    "╭─ Traceback (most recent call last) ─╮\n│ a:1 in b │\n", "A Traceback (most recent call last)\nFile a:1:1, in b",
]  # fmt: skip


@pytest.mark.unmeasured
@pytest.mark.parametrize("text", LONG)
def test_time_to_read_output_grows_no_faster_than_output(text):
    """Running processes are checked ten times a second. Patterns that search from every position would take seconds."""

    def read(size: int) -> None:
        filled = (text * (size // len(text) + 1))[:size]
        for output in (filled, "\n" * (size // 2) + filled[: size // 2]):
            explain(BAD, output)
            dying(output)
            explain_mpirun(output)

    grows_no_faster_than_its_input(read, 8_000)


def test_text_of_the_failure_file_is_the_error():
    """SageMaker shows this text of the user for that host, so the other hosts report the same text."""
    told = explain(Exit(code=255), LAST_WORDS, "training failed: row 7 is bad\nlook at the data\n")
    assert told == ("training failed: row 7 is bad", "look at the data", Confidence.HIGH)
    short = explain(Exit(code=255), LAST_WORDS, "\ntraining failed")
    assert short.error == "training failed" and "step()" in short.details
    assert explain(Exit(code=1), LAST_WORDS, " \n") == explain(Exit(code=1), LAST_WORDS)


@pytest.mark.parametrize(
    "wrote, output, confidence",
    [
        ("it failed", LAST_WORDS.replace("ValueError: bad row", "ConnectionResetError: peer"), Confidence.LOW),
        ("UnavailableError: Socket closed", "", Confidence.LOW),
        ("it failed", "", Confidence.HIGH),
    ],
)
def test_symptom_stays_a_symptom_despite_failure_file(wrote, output, confidence):
    assert explain(Exit(code=1), output, wrote).confidence is confidence


def test_refused_arguments_are_shown_whole_or_not_at_all():
    """A part of a secret would not be masked."""
    refusal = "usage: train.py [-h] [--lr LR]\ntrain.py: error: unrecognized arguments: --rate 0.1\n"
    given = ["--rate", "0.1", "--config", '{"password": "' + "hunter2" * 20 + '"}', "--epochs", "3"]
    found = explain(Exit(code=2), refusal, arguments=given)
    assert found.error.endswith("--rate 0.1 (its arguments: --rate 0.1 --config ...)")
