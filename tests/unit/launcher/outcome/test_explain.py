"""Test explain.py, tracebacks.py, symptoms.py: why a process failed, from its last output.

outputs/ holds the last output of real programs that failed, or that noticed another one fail:
TensorFlow 2.14, Horovod 0.28, Open MPI 4.1, CPython 3.11; gpu_*: TensorFlow 2.21 on an H100. Paths and addresses in it
are those of a job.
"""

import random
import re
from pathlib import Path

import pytest
from growth import grows_no_faster_than_its_input
from hypothesis import given
from hypothesis import strategies as st

from entrypoint.launcher.outcome.explain import dying, explain, explain_mpirun
from entrypoint.launcher.outcome.native import lost_child
from entrypoint.launcher.outcome.outcome import Confidence, Exit
from entrypoint.launcher.outcome.symptoms import reads_like_symptom
from entrypoint.launcher.outcome.tracebacks import tracebacks

OUTPUTS = Path(__file__).parent / "outputs"
BAD = Exit(code=1)
TF = "tensorflow.python.framework.errors_impl."


def output(name: str) -> str:
    return (OUTPUTS / f"{name}.txt").read_text()


def killed(number: int) -> Exit:
    return Exit(code=128 + number, signal=number)


STRONG, WEAK = Confidence.HIGH, Confidence.LOW
REAL = {
    # what was printed: how it ended, the error line, a part of the details, how sure
    # The first that went wrong.
    "mwms_culprit_raises": (BAD, "ValueError: bad loss", 'act\n    if me["index"]==1', STRONG),
    "horovod_culprit": (BAD, "ValueError: bad loss", "line 12, in <module>", STRONG),
    "horovod_shapes": (
        BAD, f"{TF}FailedPreconditionError: Mismatched ALLREDUCE tensor shapes: One rank sent a tensor of shape [1000],"
        " but another rank sent a tensor of shape [10].", "hvd.allreduce(x)", STRONG),
    "tf_shapes": (BAD, f"{TF}InvalidArgumentError: Incompatible shapes: [4,1] vs. [5,1]", "train.py", STRONG),
    "tf_user_code": (
        BAD, 'ValueError: Input 0 of layer "sequential" is incompatible with the layer: expected shape=(None, 3),'
        " found shape=(None, 7)", "m.fit(", STRONG),
    "tf_per_replica": (
        BAD, "ValueError: Attempt to convert a value (PerReplica:{ ... }) with an unsupported type"
        " (<class 'tensorflow.python.distribute.values.PerReplica'>) to a Tensor.", "return tf.constant(d)", STRONG),
    "tf_check_numerics": (BAD, f"{TF}InvalidArgumentError: loss is bad : Tensor had NaN values", "train.py", STRONG),
    "tf1_no_such_folder": (
        BAD, f"{TF}NotFoundError: NOT_FOUND: From /job:ps/replica:0/task:1: /opt/ml/checkpoints/0/model.ckpt-0_temp;"
        " No such file or directory", "cell.py", STRONG),
    "tf_py_function": (BAD, "ValueError: bad record 7", 'raise ValueError("bad record 7")', STRONG),
    "tf_resource_exhausted": (
        BAD, f"{TF}ResourceExhaustedError: OOM when allocating tensor with shape[4194304,1048576] and type float on "
        "/job:localhost/replica:0/task:0/device:CPU:0 by allocator cpu", "train.py", STRONG),
    "gpu_out_of_memory": (
        BAD, f"{TF}ResourceExhaustedError: failed to allocate memory (out of memory on GPU 0: 4.00GiB asked for, "
        "76.00GiB of 76.91GiB in use)", "tf.random.normal", STRONG),
    "gpu_nccl_twice": (
        BAD, f"{TF}UnknownError: ncclCommInitRank failed: invalid usage (run with NCCL_DEBUG=WARN for details) "
        "[Op:HorovodAllreduce] name: a256 (NCCL reports this if two ranks use one GPU: set "
        "ENTRYPOINT_PROCESSES_PER_HOST to at most a host's number of GPUs, and call pin_gpu() of sagemaker_tf_data)",
        "hvd.allreduce", STRONG),
    "gpu_ps_xla": (
        BAD, f"{TF}InvalidArgumentError: Trying to access resource learning_rate/3 located in device "
        "/job:ps/replica:0/task:1/device:CPU:0 from device /job:ps/replica:0/task:0/device:CPU:0 (XLA cannot use "
        "variables of another device: with parameter servers, give Keras's optimizer jit_compile=False)", "", STRONG),
    "openmpi_segfault": (killed(11), "", "Failing at address", STRONG),
    "faulthandler": (killed(11), "Fatal Python error: Segmentation fault", "line 2 in f", STRONG),
    "fatal_python_error": (killed(6), "Fatal Python error: deallocating None", "Current thread", STRONG),
    "glibc_free": (killed(6), "free(): invalid pointer", "", STRONG),
    "recursion": (BAD, "RecursionError: maximum recursion depth exceeded", "996 more times", STRONG),
    "syntax_error": (BAD, 'SyntaxError: invalid syntax (File "/opt/ml/code/train.py", line 2)', "def f(:", STRONG),
    "argparse": (Exit(code=2), "train.py: error: argument --lr: invalid float value: 'x'", "usage:", STRONG),
    "note": (BAD, "ValueError: bad", "in batch 7", STRONG),
    # Chains, groups, other processes and threads.
    "direct_cause": (
        BAD, "RuntimeError: training failed (because of FileNotFoundError: [Errno 2] No such file or directory:"
        " '/nope')", "raise RuntimeError", STRONG),
    "echo_while_handling": (BAD, "ValueError: real reason", 'raise ValueError("real reason")', STRONG),
    "group": (BAD, "ExceptionGroup: several (2 sub-exceptions): ValueError: a; TypeError: b", "def f()", STRONG),
    "group_of_tasks": (
        BAD, "ExceptionGroup: unhandled errors in a TaskGroup (2 sub-exceptions): ValueError: bad batch",
        'raise ValueError("bad batch")', STRONG),
    "group_of_echoes": (
        BAD, "ExceptionGroup: peers (2 sub-exceptions): ConnectionResetError: [Errno 104] Connection reset by peer;"
        " BrokenPipeError: [Errno 32] Broken pipe", "raise ExceptionGroup", WEAK),
    "process_pool": (BAD, "ValueError: in pool", "p.submit(f,1)", STRONG),
    "process_pool_broken": (
        BAD, "concurrent.futures.process.BrokenProcessPool: A process in the process pool was terminated abruptly while"
        " the future was running or pending.", "p.submit(f,1)", STRONG),
    "child_process": (BAD, "ValueError: in child", "in f", STRONG),
    "thread": (Exit(code=3), "ValueError: in thread", "in f", STRONG),
    # A traceback, and yet not what ended the program.
    "handled_and_exit_3": (Exit(code=3), "epoch 2", "ZeroDivisionError", STRONG),
    "ignored_and_exit_4": (Exit(code=4), "", "Exception ignored in", STRONG),
    "ignored_after": (BAD, "KeyError: 'the reason'", "line 5", STRONG),
    "atexit_after": (BAD, "KeyError: 'the reason'", "line 5", STRONG),
    "logged_and_exit_3": (Exit(code=3), "ZeroDivisionError: division by zero", "1/0", STRONG),
    # What the others print.
    "mwms_victim_of_raise": (
        BAD, f"{TF}UnavailableError: Collective ops is aborted by: Collective ops is aborted by: Socket closed",
        "model.fit", WEAK),
    "mwms_victim_of_chief": (BAD, f"{TF}UnavailableError: Collective ops is aborted by: Socket closed", "fit", WEAK),
    "mwms_victim_of_kill": (
        BAD, f"{TF}UnavailableError: Collective ops is aborted by: Connection reset by peer", "step()", WEAK),
    "mwms_victim_heartbeat": (
        BAD, f"{TF}UnavailableError: Collective ops is aborted by: Error reported from /job:worker/task:1: Task"
        " /job:worker/replica:0/task:1 heartbeat timeout. This ...", "step()", WEAK),
    "mwms_victim_of_pause": (
        BAD, f"{TF}UnavailableError: Collective ops is aborted by: Error reported from /job:worker/task:1: Task"
        " /job:worker/replica:0/task:1 heartbeat timeout. This ...", "step()", WEAK),
    "ps_chief_without_ps": (
        BAD, f"{TF}UnavailableError: failed to connect to all addresses", "coordinator.join()", WEAK),
    "horovod_victim": (BAD, f"{TF}UnknownError: Horovod has been shut down. ...", "hvd.allreduce(x)", WEAK),
    "jax_gloo": (
        BAD, "ValueError: UNKNOWN: Gloo all-reduce failed: [external/gloo/gloo/transport/tcp/pair.cc:547] Connection "
        "closed by peer [10.0.1.2]:25497", "w = step(w,gx,gy)", WEAK),
    "jax_leader": (
        killed(6), "F1127 21:09:12.552786   10641 client.h:80] Terminating process because the JAX distributed service "
        "detected fatal errors. This most likely indicates that another task died; see the other task logs for more "
        "details. ...", "PollForError", WEAK),
    "socket_reset": (BAD, "ConnectionResetError: [Errno 104] Connection reset by peer", "c.recv(100)", WEAK),
    "socket_refused": (BAD, "ConnectionRefusedError: [Errno 111] Connection refused", "create_connection", WEAK),
    "socket_timeout": (BAD, "TimeoutError: timed out", "c.recv(1)", WEAK),
    "name_unknown": (BAD, "socket.gaierror: [Errno -2] Name or service not known", "create_connection", WEAK),
    "multiprocessing_eof": (BAD, "EOFError", "recv()", WEAK),
    "pickle_eof": (BAD, "EOFError: Ran out of input", "pickle.load", WEAK),
    "requests": (
        BAD, "requests.exceptions.ConnectionError: HTTPConnectionPool(host='127.0.0.1', port=1): Max retries exceeded"
        " with ...", "requests.get", WEAK),
    "keyboard_interrupt": (killed(2), "KeyboardInterrupt", "raise KeyboardInterrupt", WEAK),
}  # fmt: skip


@pytest.mark.parametrize("name", REAL)
def test_real_output(name):
    exit, error, within, confidence = REAL[name]
    found = explain(exit, output(name))
    if error.endswith(" ..."):
        assert found.error.startswith(error.removesuffix("..."))
    else:
        assert found.error == error
    assert within in found.details
    assert found.confidence == confidence
    # The user's own line is among what is told, wherever the exception came from.
    if "Traceback" in output(name) and "/opt/ml/code/train.py" in output(name):
        assert "/opt/ml/code/train.py" in found.details


def test_every_recorded_output_is_tested():
    assert {path.stem for path in OUTPUTS.iterdir()} == {*REAL, *MPIRUN}


MPIRUN = {
    "mpirun_abort": "MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD with errorcode 1.",
    "mpirun_non_zero": "Primary job  terminated normally, but 1 process returned a non-zero exit code. Per "
    "user-direction, the job has been aborted.",
    "mpirun_peer_disconnected": "An MPI communication peer process has unexpectedly disconnected.  This usually "
    "indicates a failure in the peer process (e.g., a crash or otherwise exiting without calling MPI_FINALIZE first).",
    "mpirun_lost_daemon": "ORTE has lost communication with a remote daemon.",
    "mpirun_no_slots": "There are not enough slots available in the system to satisfy the 7 slots that were requested"
    " by the application:",
}


@pytest.mark.parametrize("name", MPIRUN)
def test_mpirun_says_it_first(name):
    found = explain_mpirun(output(name))
    assert found.error == MPIRUN[name]
    assert found.confidence is WEAK
    assert found.error not in found.details


def test_what_ssh_says_beside_it_is_not_mpiruns_reason():
    text = "Warning: Permanently added '[algo-2]:7922' (ED25519) to the list of known hosts.\n" + output("mpirun_abort")
    assert explain_mpirun(text).error == MPIRUN["mpirun_abort"]
    beside = "Connection to 10.0.1.2 closed by remote host.\n"
    assert explain_mpirun(beside).error == beside.strip()  # unless there is nothing else
    assert explain_mpirun("") == ("", "", WEAK)


def test_what_mpirun_may_mean_stands_behind_its_words():
    """mpirun prints these words also where nothing is full, and where it does not find the hosts that it was given."""
    rule = "-" * 70
    text = f"{rule}\nAll nodes which are allocated for this job are already filled.\n{rule}\n"
    found = explain_mpirun(text)
    assert found.error.startswith(
        "All nodes which are allocated for this job are already filled. (mpirun reports this, too, "
    )


@pytest.mark.parametrize("launcher", ["rsh", "ssh"])  # as Open MPI 4 and 5 name what starts ssh
def test_a_warning_of_no_consequence_is_nobodys_reason(launcher):
    """A killed mpirun printed nothing, though ssh had been quicker than its setpgid."""
    warned = f"[vm:7] plm:{launcher}: Warning: setpgid(9,9) failed in parent with errno=Permission denied(13)\n"
    assert explain_mpirun(warned) == ("", "", WEAK)
    assert explain_mpirun(warned + output("mpirun_abort")).error == MPIRUN["mpirun_abort"]


# --- memory of a GPU ---

AT = "/job:localhost/replica:0/task:0/device:"
EXHAUSTED = (
    f'Traceback (most recent call last):\n  File "train.py", line 6, in <module>\n    f()\n{TF}ResourceExhaustedError: '
)


@pytest.mark.parametrize(
    ("before", "message", "means"),
    [
        # TensorFlow 2.14 tells plain bytes, and the request in its first line.
        (
            "Allocator (GPU_1_bfc) ran out of memory trying to allocate 4.00GiB (rounded to 4294967296)by op\n"
            "Stats: \nLimit:                     16106127360\nInUse:                     12884901888\n",
            f"OOM when allocating tensor with shape[1024] and type float on {AT}GPU:1 by allocator GPU_1_bfc [Op:Fill]",
            "out of memory on GPU 1: 4.00GiB asked for, 12.00GiB of 15.00GiB in use",
        ),
        ("", f"{{{{function_node f_{AT}GPU:0}}}} failed to allocate memory [Op:Add]", "out of memory on GPU 0"),
        (
            "W tsl/bfc_allocator.cc:485] Allocator (GPU_0_bfc) ran out of memory trying to allocate 16.00GiB\n",
            "Out of memory while trying to allocate 17179869184 bytes. [Op:__inference_step_9]",
            "out of memory on GPU 0: 16.00GiB asked for",
        ),
        # No GPU's, though there is one.
        (
            f"Created device {AT}GPU:0 with 70000 MB memory\n",
            f"OOM when allocating tensor with shape[1024] and type float on {AT}CPU:0 by allocator cpu [Op:Fill]",
            "",
        ),
    ],
)
def test_out_of_memory_says_of_which_gpu_and_how_much(before, message, means):
    found = explain(BAD, f"{before}{EXHAUSTED}{message}\n")
    assert found.error.endswith(f" ({means})") if means else "out of memory on" not in found.error


MANAGER = (
    '  File "/usr/lib/python3.11/multiprocessing/connection.py", line 399, in _recv\n    raise EOFError\nEOFError\n'
)
CHILDREN = {
    output("process_pool_broken"): True,
    MANAGER: True,
    "RuntimeError: DataLoader worker (pid 41) is killed by signal: Killed. \n": True,
    "RuntimeError: DataLoader worker (pid(s) 41, 42) exited unexpectedly\n": True,
    "joblib.externals.loky.process_executor.TerminatedWorkerError: A worker process\n": True,
    "subprocess.CalledProcessError: Command 'a.sh' died with <Signals.SIGKILL: 9>.\n": True,
    "subprocess.CalledProcessError: Command 'a.sh' returned non-zero exit status 137.\n": True,
    "x86_64-linux-gnu-gcc: fatal error: Killed signal terminated program cc1plus\n": True,
    "a.sh: line 3:    71 Killed                  python3 rows.py\n": True,
    "loader ended with exit code -9\n": True,
    output("socket_reset"): False,
    output("pickle_eof"): False,
    output("horovod_victim"): False,
    output("mwms_victim_of_kill"): False,
    "subprocess.CalledProcessError: Command 'a.sh' returned non-zero exit status 1.\n": False,
    "loss at step 137: 9\n": False,
}


@pytest.mark.parametrize("text", CHILDREN)
def test_whether_the_kernel_is_asked_for_a_lack_of_memory(text):
    """Its counter tells of the whole host: the end of a process must look as if it had lost a child."""
    assert lost_child(text) == CHILDREN[text]


# --- texts of other programs, in the form that their sources print ---

RAISED = """\
epoch 1
Traceback (most recent call last):
  File "/opt/ml/code/train.py", line 7, in <module>
    main()
  File "/opt/ml/code/train.py", line 4, in main
    raise ValueError("too small")
ValueError: too small
"""
SEVERAL_LINES = """\
Traceback (most recent call last):
  File "train.py", line 1, in <module>
    raise ValueError("first line\\nsecond line\\n\\n  third line")
ValueError: first line
second line

  third line
"""
MANY_LINES = (
    'epoch 1\nTraceback (most recent call last):\n  File "/opt/ml/code/train.py", line 7, in <module>\n    fit(d)\n'
    "ValueError: Attempt to convert a value (PerReplica:{\n  0: <tf.Tensor: shape=(300, 1), numpy=\narray([\n"
    + "[1.4317296],\n" * 300
    + "]\n}) with an unsupported type (X)\n"
)
BANNER = """\
--------------------------------------------------------------------------
MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD
with errorcode 1.

NOTE: invoking MPI_ABORT causes Open MPI to kill all MPI processes.
--------------------------------------------------------------------------
"""
LOGS = "2026-11-21 12:20:12.510354: E tensorflow/core/common_runtime/ring_alg.cc:291] Aborting RingReduce\n"
OWN_CLASS = """\
Traceback (most recent call last):
  File "train.py", line 3, in <module>
    raise mine.Stop("enough")
mine.Stop: enough
"""
MIXED = """\
Traceback (most recent call last):
  File "/opt/ml/code/train.py", line 7, in <module>
loss: 0.31
    main()
2026-11-21 12:20:12.510354: W tensorflow/core/framework/op_kernel.cc:1827] a line of another thread
  File "/opt/ml/code/train.py", line 4, in main
    raise ValueError("too small")
ValueError: too small
step: 12
"""
RANKS = """\
[rank1]: Traceback (most recent call last):
[rank1]:   File "/opt/ml/code/train.py", line 4, in <module>
[rank1]:     dist.all_reduce(x)
[rank1]: torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1691, unhandled system error, NCCL 2.20
"""
FROM_A_SYMPTOM = """\
Traceback (most recent call last):
  File "train.py", line 2, in <module>
    peer.recv(1)
ConnectionResetError: [Errno 104] Connection reset by peer

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "train.py", line 4, in <module>
    raise RuntimeError("a peer is gone") from error
RuntimeError: a peer is gone
"""
RPC = """\
Traceback (most recent call last):
  File "/opt/ml/code/train.py", line 9, in <module>
    stub.Get(request)
  File "/opt/venv/lib/python3.11/site-packages/grpc/_channel.py", line 1030, in __call__
    return _end_unary_response_blocking(state, call, False, None)
grpc._channel._InactiveRpcError: <_InactiveRpcError of RPC that terminated with:
\tstatus = StatusCode.UNAVAILABLE
\tdetails = "failed to connect to all addresses"
>
"""
IMPORTED = """\
Traceback (most recent call last):
  File "/opt/ml/code/train.py", line 1, in <module>
    import model
  File "/opt/ml/code/model.py", line 2
    def f(:
          ^
SyntaxError: invalid syntax
"""
MPI_FATAL = """\
[algo-2:00012] *** An error occurred in MPI_Recv
[algo-2:00012] *** reported by process [1083768833,1]
[algo-2:00012] *** on communicator MPI_COMM_WORLD
[algo-2:00012] *** MPI_ERR_TRUNCATE: message truncated
[algo-2:00012] *** MPI_ERRORS_ARE_FATAL (processes in this communicator will now abort,
[algo-2:00012] ***    and potentially your MPI job)
"""
TERMINATE = "terminate called after throwing an instance of 'std::runtime_error'\n  what():  bad config\n"
RUST = (
    "thread 'main' panicked at src/main.rs:2:5:\nindex out of bounds: the len is 3 but the index is 7\nnote: run with"
)
CHECK = "2026-11-21 12:00:00.000001: F tensorflow/core/util/x.cc:7] Check failed: a == b (1 vs. 2)\n"
GLOO = (
    "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:598] Connection closed by peer [10.0.1.2]:2222"
)
TEXTS = {
    "exception": (RAISED, BAD, "ValueError: too small", "line 4, in main", STRONG),
    "cut at its head": (RAISED[30:], BAD, "ValueError: too small", "line 4", STRONG),
    "carriage returns": (RAISED.replace("\n", "\r\n"), BAD, "ValueError: too small", "line 7", STRONG),
    "in colours": (
        RAISED.replace("ValueError", "\x1b[1;35mValueError\x1b[0m"), BAD, "ValueError: too small", "", STRONG),
    "message of several lines": (SEVERAL_LINES, BAD, "ValueError: first line", "second line", STRONG),
    "followed by MPI_ABORT's banner": (RAISED + BANNER, BAD, "ValueError: too small", "line 7", STRONG),
    "followed by log lines": (RAISED + LOGS * 50, BAD, "ValueError: too small", "line 7", STRONG),
    "followed by some lines": (RAISED + "saving\n" * 12, BAD, "ValueError: too small", "line 7", STRONG),
    "a message of 300 lines": (
        MANY_LINES, BAD, "ValueError: Attempt to convert a value (PerReplica:{ ... }) with an unsupported type (X)",
        "line 7, in <module>", STRONG),
    "a message of 300 lines, and then others": (
        MANY_LINES + "saving\n" * 12, BAD,
        "ValueError: Attempt to convert a value (PerReplica:{ ... }) with an unsupported type (X)", "line 7", STRONG),
    "a message with brackets that nothing closes": (
        RAISED.replace("too small", "too small :-("), BAD, "ValueError: too small :-(", "line 4", STRONG),
    "brackets that nothing closes, long before the end": (
        RAISED.replace("too small", "too small :-(") + "saved\n" * 40 + "bye\n", BAD, "ValueError: too small :-(", "",
        STRONG),
    "long before the end": (RAISED + "saved\n" * 300 + "bye\n", BAD, "ValueError: too small", "line 7", STRONG),
    "long before the end of a thread": (
        RAISED.replace("in <module>", "in _bootstrap").replace("train.py", "threading.py") + "epoch\n" * 40 +
        "bad data\n", BAD, "bad data", "epoch", STRONG),
    "caught, and then some lines": (
        RAISED.replace("in <module>", "in run") + "giving up\n", BAD, "giving up (after ValueError: too small)",
        "line 7", STRONG),
    "caught, and then many lines": (
        RAISED.replace("in <module>", "in run") + "epoch\n" * 40 + "bad data\n", BAD, "bad data", "epoch", STRONG),
    "followed by a line, and exit 5": (RAISED + "giving up\n", Exit(code=5), "giving up", "ValueError", STRONG),
    "mixed with other lines": (MIXED, BAD, "ValueError: too small", "line 7", STRONG),
    "a class of another name": (OWN_CLASS, BAD, "mine.Stop: enough", "line 3", STRONG),
    "a SyntaxError of a module": (
        IMPORTED, BAD, 'SyntaxError: invalid syntax (File "/opt/ml/code/model.py", line 2)', "import model", STRONG),
    "an exception because of a symptom": (
        FROM_A_SYMPTOM, BAD, "RuntimeError: a peer is gone (because of ConnectionResetError: [Errno 104] Connection"
        " reset by peer)", "line 4", WEAK),
    "gRPC": (
        RPC, BAD, "grpc._channel._InactiveRpcError: <_InactiveRpcError of RPC that terminated with: status ="
        ' StatusCode.UNAVAILABLE, details = "failed to connect to all addresses"', "stub.Get", WEAK),
    "lines with a prefix": (
        RANKS, BAD, "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1691, unhandled system"
        " error, NCCL 2.20", "dist.all_reduce(x)", WEAK),
    "MPI's errors are fatal": (MPI_FATAL, Exit(code=15), "MPI_Recv: MPI_ERR_TRUNCATE: message truncated", "", STRONG),
    "C++": (TERMINATE, killed(6), TERMINATE.replace("\n ", "").strip().replace("  what", " what"), "", STRONG),
    "Rust": (RUST, Exit(code=101), " ".join(RUST.splitlines()[:2]), "note:", STRONG),
    "a failed check of TensorFlow": (CHECK + "stack\n", killed(6), CHECK.strip(), "stack", STRONG),
    "an assertion of C": ("a: x.c:3: main: Assertion `0' failed.\n", killed(6), "a: x.c:3: main: Assertion `0' failed.",
                          "", STRONG),
    "a traceback, and then an abort": (RAISED, killed(6), "ValueError: too small", "line 7", STRONG),
    "a traceback long before an abort": (RAISED + "saved\n" * 3, killed(6), "ValueError: too small", "line 7", STRONG),
    "a traceback that it got over, and then an abort": (
        RAISED.replace("in <module>", "in run") + "going on\n" * 3, killed(6), "", "going on", STRONG),
    "a traceback before SIGKILL": (RAISED, killed(9), "", "ValueError: too small", STRONG),
    "sys.exit(text)": ("epoch 1\nno such channel: train\n", BAD, "no such channel: train", "epoch 1", STRONG),
    "sys.exit(text of several lines)": (
        "epoch 1\ncannot train:\n  no GPU\n  no data\n", BAD, "cannot train: no GPU no data", "epoch 1", STRONG),
    "sys.exit(a list)": ("epoch 1\nmissing:\ntrain.csv\n", BAD, "missing: train.csv", "epoch 1", STRONG),
    "sys.exit(lines that nothing joins)": ("epoch 1\nno GPU\nno data\n", BAD, "no data", "no GPU\nno data", STRONG),
    "a progress bar of many lines": ("step\n" + " 1/10 [=\n" * 20, Exit(code=3), "1/10 [=", "", STRONG),
    "sys.exit(3)": ("epoch 1\n", Exit(code=3), "epoch 1", "", STRONG),
    "nothing printed": ("", Exit(code=3), "", "", STRONG),
    "only lines of dashes": ("-----\n=====\n", BAD, "", "", STRONG),
    "segfault": ("epoch 1\n", killed(11), "", "epoch 1", STRONG),
    "SIGTERM": ("epoch 1\n", killed(15), "", "epoch 1", WEAK),
    "SIGPIPE": ("epoch 1\n", killed(13), "", "epoch 1", WEAK),
    "SIGHUP": ("", killed(1), "", "", WEAK),
    # A shell ends with 128 + the signal of the program that it ran.
    "bash, segfault": (
        "a\ntrain.sh: line 1: 25173 Segmentation fault      python3 train.py\n", Exit(code=139),
        "train.sh: line 1: 25173 Segmentation fault      python3 train.py"
        " (139 is 128 + 11: a shell's program was killed by SIGSEGV)", "", STRONG),
    "dash, killed": (
        "a\nKilled\n", Exit(code=137),
        "Killed (137 is 128 + 9: a shell's program was killed by SIGKILL)", "a", STRONG),
    "a shell that says nothing": (
        "a\n", Exit(code=139), "139 is 128 + 11: a shell's program was killed by SIGSEGV", "a", STRONG),
    "a shell, faulthandler": (
        output("faulthandler") + "Segmentation fault\n", Exit(code=139), "Fatal Python error: Segmentation fault"
        " (139 is 128 + 11: a shell's program was killed by SIGSEGV)", "line 2 in f", STRONG),
    "a shell, exception": (RAISED, BAD, "ValueError: too small", "line 7", STRONG),
    "a shell or a handler, SIGTERM": (
        "saved\n", Exit(code=143), "143 is 128 + 15: a shell's program was killed by SIGTERM", "saved",
        WEAK),
    "a code above 128 that is no signal": ("boo\n", Exit(code=255), "boo", "", STRONG),
    "a symptom in the last line": ("error: Connection refused by algo-1\n", Exit(code=4),
                                 "error: Connection refused by algo-1", "", WEAK),
    "an echo earlier": (output("socket_reset") + "going on\n" * 40 + RAISED, BAD, "ValueError: too small", "", STRONG),
}  # fmt: skip


@pytest.mark.parametrize("name", TEXTS)
def test_text(name):
    text, exit, error, within, confidence = TEXTS[name]
    found = explain(exit, text)
    assert (found.error, found.confidence) == (error, confidence)
    assert within in found.details


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
    "RuntimeError": GLOO.removeprefix("RuntimeError: "),
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
def test_symptom(name):
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
def test_no_symptom(name, message):
    assert not reads_like_symptom(name, message)


def test_a_failure_to_reach_an_outside_service_is_only_weak():
    """It may be the first failure; it is used only if nothing better comes."""
    found = explain(BAD, output("requests"))
    assert found.confidence is WEAK and "Max retries exceeded" in found.error


def test_frames_of_libraries_give_way_to_the_users():
    details = explain(BAD, output("tf_user_code")).details
    assert "m.fit(tf.ones([4,7])" in details
    details = explain(BAD, output("ps_chief_without_ps")).details
    assert "coordinator.join()" in details and "frames of libraries" in details


def test_the_runner_of_mpi_programs_is_left_out():
    runner = (
        '  File "<frozen runpy>", line 198, in _run_module_as_main\n'
        '  File "/opt/venv/lib/python3.11/site-packages/mpi4py/run.py", line 53, in run_command_line\n'
        '    run_path(sys.argv[0], run_name="__main__")\n'
    )
    text = RAISED.replace("call last):\n", "call last):\n" + runner)
    assert explain(BAD, text) == explain(BAD, RAISED)


# --- whatever is printed ---


@given(st.text(), st.integers(0, 255), st.sampled_from([None, 1, 2, 6, 9, 11, 13, 15, 64]))
def test_any_output_is_borne(text, code, number):
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
def test_pieces_of_tracebacks_in_any_order_are_borne(pieces, between, code):
    text = between.join(pieces)
    error, details, _ = explain(Exit(code=code), text)
    assert len(error.splitlines()) <= 1 and len(details) <= 2000
    for chain in tracebacks(text.splitlines()):
        assert all(raised.name and raised.first <= raised.last for raised in chain)


@pytest.mark.parametrize("name", REAL)
def test_cut_anywhere(name):
    """Only the last output is kept: what is left of a traceback is read, and an exception's own line is enough."""
    exit, error, _, confidence = REAL[name]
    text = output(name)
    for at in random.Random(name).sample(range(len(text)), min(25, len(text))):
        explain(exit, text[at:])
    if exit == BAD and confidence is STRONG and text.count("Traceback") == 1 and not text.startswith("  "):
        head = text.index("Traceback")
        known = re.sub(r": \S+ asked for, .* in use", "", error)  # without what an allocator told before
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
def test_what_a_running_program_says_of_its_end(output, error):
    found = dying(output)
    assert (found and found.error) == error


def test_of_a_long_message_the_traceback_is_told_and_not_the_middle():
    details = explain(BAD, MANY_LINES).details
    assert details.splitlines()[:3] == MANY_LINES.splitlines()[1:4]
    assert details.endswith("}) with an unsupported type (X)") and len(details.splitlines()) < 15


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
def test_long_output_of_any_kind_is_read_in_no_time(text):
    """Running processes are checked ten times a second; patterns that look back or on from everywhere take seconds."""

    def read(size: int) -> None:
        filled = (text * (size // len(text) + 1))[:size]
        for output in (filled, "\n" * (size // 2) + filled[: size // 2]):
            explain(BAD, output)
            dying(output)
            explain_mpirun(output)

    grows_no_faster_than_its_input(read, 8_000)


def test_what_a_program_wrote_to_the_failure_file_comes_first():
    """SageMaker shows the user's words for that host, so the other hosts report the same."""
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
def test_a_symptom_stays_one_however_it_is_written(wrote, output, confidence):
    assert explain(Exit(code=1), output, wrote).confidence is confidence


def test_arguments_of_a_refused_command_line_are_whole_or_left_out():
    """Half of a secret would not be masked."""
    refusal = "usage: train.py [-h] [--lr LR]\ntrain.py: error: unrecognized arguments: --rate 0.1\n"
    given = ["--rate", "0.1", "--config", '{"password": "' + "hunter2" * 20 + '"}', "--epochs", "3"]
    found = explain(Exit(code=2), refusal, arguments=given)
    assert found.error.endswith("--rate 0.1 (its arguments: --rate 0.1 --config ...)")
