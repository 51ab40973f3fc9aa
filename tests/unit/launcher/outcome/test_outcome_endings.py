"""Test the last output of real libraries in programs that failed, and the line that a person would name.

endings/ holds what programs of a few lines printed under CPython 3.11, with the libraries of late
2026: argument parsers, experiment trackers, loggers, crashes, MPI, other processes and threads. Paths are a job's.
TEXTS are in the form that sources of libraries print which are not at hand here.
"""

from pathlib import Path

import pytest

from entrypoint.launcher.outcome.explain import dying, explain
from entrypoint.launcher.outcome.outcome import Confidence, Exit, Tail

ENDINGS = Path(__file__).parent / "endings"
BAD = Exit(code=1)
BATCH = "ValueError: bad batch 7"


def ending(name: str) -> str:
    return (ENDINGS / f"{name}.txt").read_text()


def kept(text: str) -> str:
    """Return what the launcher keeps of an output."""
    tail = Tail()
    for line in text.splitlines(keepends=True):
        tail.add(line.encode())
    return tail.whole().decode("utf-8", "replace")


def killed(number: int) -> Exit:
    return Exit(code=128 + number, signal=number)


REAL = {
    # what was printed: how it ended, the line that a person would name
    # Refusals of the command line.
    "absl_illegal": (BAD, "FATAL Flags parsing error: flag --lr=high: could not convert string to float: 'high'"),
    "absl_required": (
        BAD,
        "FATAL Flags parsing error: flag --data=None: Flag --data must have a value other than None.",
    ),
    "absl_unknown": (BAD, "FATAL Flags parsing error: Unknown command line flag 'model_dir'. Did you mean: log_dir ?"),
    "absl_usage_error": (BAD, "--train_dir or --eval_dir must be given"),
    "argparse_own_error": (Exit(code=2), "my trainer: error: lr must not be negative: it is -1"),
    "argparse_then_goodbye": (Exit(code=2), "train.py: error: argument --lr: invalid float value: 'x'"),
    "argparse_unknown": (Exit(code=2), "train.py: error: unrecognized arguments: --model_dir s3://bucket/job/model"),
    "click_exception": (BAD, "Error: no channel: train"),
    "click_group": (Exit(code=2), "Error: No such command 'trian'. Did you mean 'train'?"),
    "click_missing": (Exit(code=2), "Error: Missing option '--optimizer'. Choose from: adam, sgd, adagrad"),
    "click_similar": (Exit(code=2), "Error: No such option '--epoch'. Did you mean '--epochs'?"),
    "cyclopts": (Exit(code=2), "Error: Unknown option: --model_dir."),
    "docopt": (
        BAD,
        "Warning: found unmatched (duplicate?) arguments [Option(None, '--model_dir', 0, True), Argument(None, "
        "'s3://bucket/job/model')]",
    ),
    "fire_missing": (Exit(code=2), "ERROR: The function received no value for the required argument: data"),
    "fire_unknown": (Exit(code=2), "ERROR: Could not consume arg: --model_dir"),
    "getopt_by_hand": (Exit(code=2), "option --model_dir not recognized"),
    "hydra_argv": (Exit(code=2), "train.py: error: unrecognized arguments: --model_dir --lr 0.1"),
    "hydra_lexer": (
        BAD,
        "no viable alternative at input '[1,' See https://hydra.cc/docs/1.2/advanced/override_grammar/basic for "
        "details",
    ),
    "hydra_missing": (BAD, "omegaconf.errors.MissingMandatoryValue: Missing mandatory value: lr"),
    "hydra_no_config": (
        BAD,
        "Primary config directory not found. Check that the config directory '/opt/ml/code/conf' exists and readable",
    ),
    "hydra_override": (
        BAD,
        "Could not override 'model_dir'. To append to your config use +model_dir=/opt/ml/model Key 'model_dir' "
        "not in 'C' full_key: model_dir object_type=C",
    ),
    "jsonargparse_value": (Exit(code=2), "error: Parser key \"lr\": Expected a <class 'float'>. Got value: high"),
    "pydantic": (
        BAD,
        "pydantic_core._pydantic_core.ValidationError: 2 validation errors for C: lr: Input should be a valid "
        "number, unable to parse string as a number [type=float_parsing, input_value='high', input_type=str]",
    ),
    "sacred": (BAD, "Conflicting configuration values: learning_rate=3"),
    "shell_refusal_after": (
        BAD,
        "FATAL Flags parsing error: Unknown command line flag 'model_dir'. Did you mean: log_dir ?",
    ),
    "typer_ascii": (Exit(code=2), "Error: No such option: --model_dir"),
    "typer_unknown": (Exit(code=2), "Error: No such option: --model_dir"),
    "typer_value": (
        Exit(code=2),
        "Error: Invalid value for '--lr': Input should be a valid number, unable to parse string as a number",
    ),
    "tyro_missing": (
        Exit(code=2),
        "Required options: Missing from train.py: --data STR (required) --epochs INT (required)",
    ),
    "tyro_unknown": (Exit(code=2), "Unrecognized options: --model_dir, s3://bucket/job/model"),
    "tyro_value": (Exit(code=2), "Value error: Error parsing --lr: could not convert string to float: 'high'"),
    # Experiment trackers and others that say good-bye.
    "clearml": (BAD, BATCH),
    "comet": (BAD, BATCH),
    "daemon_thread_at_exit": (BAD, BATCH),
    "logging_after_close": (BAD, BATCH),
    "logging_hook": (BAD, BATCH),
    "neptune": (BAD, BATCH),
    "notes_and_goodbye": (BAD, BATCH),
    "rich_then_goodbye": (BAD, BATCH),
    "tf_ckpt_unused": (BAD, BATCH),
    "tf_destructor": (BAD, BATCH),
    "typer_raises_goodbye": (BAD, BATCH),
    "wandb": (BAD, BATCH),
    "wandb_caught": (BAD, BATCH),
    "wandb_exit": (BAD, "no channel: train"),
    # Log lines and tracebacks in other forms.
    "better_exceptions": (BAD, BATCH),
    "cgitb_text": (BAD, BATCH),
    "ipython": (BAD, BATCH),
    "json_logger": (BAD, BATCH),
    "logging_error": (BAD, "no channel: train"),
    "logging_json": (BAD, BATCH),
    "loguru_exception": (BAD, BATCH),
    "nbconvert": (BAD, BATCH),
    "papermill": (BAD, BATCH),
    "rich_ascii": (BAD, BATCH),
    "rich_deep_path": (
        BAD,
        "JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
    ),
    "rich_handler": (BAD, BATCH),
    "rich_traceback_chain": (
        BAD,
        "RuntimeError: the channel [train] has no files, and this message is long enough to be broken into two "
        "lines (because of KeyError: 'train')",
    ),
    "stackprinter": (BAD, BATCH),
    "structlog_exception": (BAD, BATCH),
    "structlog_hook": (BAD, BATCH),
    # Crashes.
    "absl_log_fatal": (killed(6), "F1127 13:27:51.786898 139772569844608 train.py:2] no channel: train"),
    "faulthandler_timer": (BAD, "Timeout (0:00:00.200000)!"),
    "manager_died": (
        BAD,
        "concurrent.futures.process.BrokenProcessPool: A process in the process pool was terminated abruptly "
        "while the future was running or pending.",
    ),
    "memory_error": (BAD, "MemoryError"),
    "numpy_memory": (
        BAD,
        "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 8.00 TiB for an array with shape "
        "(1048576, 1048576) and data type float64",
    ),
    "segfault_at_exit": (killed(11), BATCH),
    "terminate": (
        killed(6),
        "terminate called after throwing an instance of 'std::runtime_error' what():  bad batch 7",
    ),
    "terminate_at_exit": (killed(6), BATCH),
    # MPI.
    "mpi4py_abort": (BAD, BATCH),
    "mpi4py_comm_abort": (Exit(code=3), "no channel: train"),
    "mpirun_in_shell_exits": (BAD, "no channel: train"),
    "mpirun_in_shell_killed": (
        Exit(code=139),
        "mpirun noticed that process rank 0 with PID 0 on node algo-1 exited on signal 11 (Segmentation fault). "
        "(139 is 128 + 11: a shell's program was killed by SIGSEGV)",
    ),
    "mpirun_in_shell_no_program": (
        Exit(code=132),
        "mpirun was unable to launch the specified application as it could not access or execute an executable: "
        "Executable: ./nothing Node: algo-1",
    ),
    "mpirun_in_shell_raises": (BAD, BATCH),
    "mpirun_root_after_words": (
        BAD,
        "mpirun has detected an attempt to run as root. (a script that calls it as root gives it "
        "--allow-run-as-root, or sets OMPI_ALLOW_RUN_AS_ROOT=1 and OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1)",
    ),
    # Exceptions at the end, in chains, groups, threads and other processes.
    "asyncio_never_retrieved": (BAD, BATCH),
    "broken_hook": (BAD, BATCH),
    "chain_three": (
        BAD,
        "ValueError: training cannot begin (because of RuntimeError: cannot load the channel train, because of "
        "FileNotFoundError: [Errno 2] No such file or directory: '/opt/ml/input/data/train/a.csv')",
    ),
    "child_program": (
        BAD,
        "subprocess.CalledProcessError: Command '['/opt/venv/bin/python', 'prepare.py']' returned non-zero exit "
        "status 1. (because of ValueError: a.csv: no rows)",
    ),
    "click_abort": (BAD, "Aborted!"),
    "destructor": (BAD, BATCH),
    "exceptiongroup_backport": (BAD, "ExceptionGroup: loaders failed (1 sub-exception): ValueError: bad batch 7"),
    "executor_at_exit": (BAD, BATCH),
    "generator_exit": (BAD, "RuntimeError: the trainer stops"),
    "group_nested_notes": (
        BAD,
        "ExceptionGroup: loaders failed (2 sub-exceptions): ValueError: bad batch 7; ExceptionGroup: uploads (2 "
        "sub-exceptions); OSError: [Errno 28] No space left on device",
    ),
    "grpc_down": (
        BAD,
        "grpc._channel._InactiveRpcError: <_InactiveRpcError of RPC that terminated with: status = "
        'StatusCode.UNAVAILABLE, details = "failed to connect to all addresses; last error: UNKNOWN: '
        'ipv4:127.0.0.1:1: Failed to connect to remote host: Connection refused"',
    ),
    "grpc_internal": (
        BAD,
        "grpc._channel._InactiveRpcError: <_InactiveRpcError of RPC that terminated with: status = "
        'StatusCode.UNKNOWN, details = "Exception calling application: bad batch 7"',
    ),
    "hydra_raises": (BAD, BATCH),
    "joblib": (BAD, "ValueError: bad batch 2"),
    "multiprocessing_spawn_main": (BAD, BATCH),
    "os_exit": (BAD, "shutting down (after ValueError: bad batch 7)"),
    "print_exc_and_exit": (BAD, "Training failed (after ValueError: bad batch 7)"),
    "process_child_then_exit": (BAD, "ValueError: bad batch 1"),
    "protobuf_parse": (
        BAD,
        'google.protobuf.text_format.ParseError: 2:1 : Message type "google.protobuf.FileDescriptorProto" has no '
        'field named "model_dir".',
    ),
    "pytest_like_logging_shutdown": (BAD, BATCH),
    "shell_child": (BAD, BATCH),
    "shell_not_found": (Exit(code=127), "./train.sh: 2: pyhton3: not found"),
    "thread_at_exit": (BAD, BATCH),
    "thread_excepthook_then_exit": (BAD, BATCH),
    "thread_long_ago": (BAD, "loss is not finite"),
    "thread_then_main": (
        BAD,
        "RuntimeError: the loader gave nothing (after OSError: [Errno 28] No space left on device)",
    ),
    "warning_after": (BAD, BATCH),
}


@pytest.mark.parametrize("name", REAL)
def test_the_line_that_a_person_would_name_is_the_error(name):
    exit, error = REAL[name]
    assert explain(exit, kept(ending(name))).error == error


def test_every_recorded_ending_is_tested():
    assert {path.stem for path in ENDINGS.iterdir()} == {*REAL}


def test_frames_in_other_forms_are_told_as_pythons():
    for name, place in {
        "rich_deep_path": 'File "/usr/local/lib/python3.11/json/decoder.py", line 353, in raw_decode',
        "rich_handler": 'File "/opt/ml/code/train.py", line 5, in main',
        "rich_ascii": 'File "/opt/ml/code/train.py", line 3, in step',
        "ipython": 'File "~/train.py", line 1, in step',
        "papermill": 'File "Cell In[1]", line 2, in step',
        "json_logger": 'File "/opt/ml/code/train.py", line 5, in main',
    }.items():
        details = explain(BAD, ending(name)).details
        assert place in details and "─" not in details and "\\n" not in details


# --- whatever is printed after an exception that left the program ---

RAISED = """\
epoch 1
Traceback (most recent call last):
  File "/opt/ml/code/train.py", line 7, in <module>
    main()
  File "/opt/ml/code/train.py", line 4, in main
    raise ValueError("bad batch 7")
ValueError: bad batch 7
"""
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
    "a thread's exception": ending("thread_at_exit").partition("bad batch 7\n")[2].partition("bad batch 7\n")[2],
    "an abort of a destructor": "terminate called without an active exception\nAborted (core dumped)\n",
}


@pytest.mark.parametrize("after", AFTERWARDS)
@pytest.mark.parametrize("exit", [BAD, Exit(code=120), killed(6), Exit(code=134)], ids=str)
def test_what_is_printed_at_exit_is_not_the_reason(exit, after):
    found = explain(exit, kept(RAISED + AFTERWARDS[after]))
    assert found.error == BATCH and "line 4, in main" in found.details
    assert found.confidence is Confidence.HIGH


@pytest.mark.parametrize("after", ["wandb", "MLflow"])
def test_the_last_words_of_trackers_are_nobodys_reason(after):
    bye = AFTERWARDS[after]
    assert explain(BAD, CAUGHT + bye).error == BATCH
    assert explain(BAD, f"no channel: train\n{bye}").error == "no channel: train"
    assert explain(Exit(code=2), f"usage: a.py\na.py: error: no --lr\n{bye}").error == "a.py: error: no --lr"
    assert explain(BAD, bye).error == ""
    assert explain(BAD, f"wandb: ERROR no API key\n{bye}").error == "wandb: ERROR no API key"
    # It has not ended yet, and its peers feel that it will.
    found = dying(RAISED + bye)
    assert found and found.error == BATCH


STACK = '\n\nCurrent thread 0x1 (most recent call first):\n  File "a.py", line 3 in f\n'
STOPPED = f"Fatal Python error: Segmentation fault{STACK}"


def test_a_program_that_went_on_ended_of_something_else():
    crash = STOPPED + '  File "a.py", line 9 in <module>\n'
    assert explain(killed(11), RAISED + crash).error == "Fatal Python error: Segmentation fault"
    assert explain(killed(11), RAISED + STOPPED).error == BATCH  # a destructor's crash
    assert explain(killed(9), RAISED + "epoch 2\n").error == ""
    assert explain(killed(11), kept(RAISED + "epoch 2: loss 0.1\n" * 3000)).error == ""
    assert explain(BAD, kept(RAISED + "epoch 2: loss 0.1\n" * 3000 + "no rows\n")).error == "no rows"
    # A shell that ran two programs.
    hydra = "Could not override 'lr'.\nKey 'lr' not in 'C'\n\nSet the environment variable HYDRA_FULL_ERROR=1 for it.\n"
    assert explain(BAD, RAISED + hydra).error == "Could not override 'lr'. Key 'lr' not in 'C'"
    assert explain(Exit(code=2), RAISED + ending("argparse_unknown")).error == REAL["argparse_unknown"][1]


def test_a_refusal_that_a_program_got_over_is_not_its_end():
    refused = ending("argparse_unknown")
    assert explain(BAD, f"{refused}epoch 1\nno channel: train\n").error == "no channel: train"
    assert explain(BAD, f"{refused}{RAISED}").error == BATCH
    box = ending("typer_unknown")
    assert explain(BAD, f"{box}epoch 1\nno channel: train\n").error == "no channel: train"


# --- texts of libraries that are not at hand here, in the form that their sources print ---

AT = 'Traceback (most recent call last):\n  File "/opt/ml/code/train.py", line 9, in <module>\n    step()\n'
IN = '  File "/opt/venv/lib/python3.11/site-packages/torch/utils/data/_utils/worker.py", line 349, in _worker_loop\n'
LOADER = (
    f"{AT}ValueError: Caught ValueError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n"
    f"{IN}    data = fetcher.fetch(index)\nValueError: bad batch 7\n"
)
SPAWNED = (
    f"{AT}torch.multiprocessing.spawn.ProcessRaisedException: \n\n-- Process 0 terminated with the following error:\n"
    f"Traceback (most recent call last):\n{IN}    fn(i, *args)\nValueError: bad batch 7\n"
)
TORCH = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 15.77 GiB of"
    " which 1.52 GiB is free."
)
ASSERT = "CUDA error: device-side assert triggered"
DUMP = (
    "2026-11-27 13:00:00.000001: W tsl/framework/bfc_allocator.cc:485] Allocator (GPU_0_bfc) ran out of memory trying "
    "to allocate 16.00GiB (rounded to 17179869184)requested by op\n"
    "Stats: \nLimit:                     16106127360\nInUse:                     12884901888\n"
)
OOM = (
    "tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor with shape[1024] and "
    "type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc"
)
ON_GPU = f"{OOM} (out of memory on GPU 0: 16.00GiB asked for, 12.00GiB of 15.00GiB in use)"
JAX = "XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 17179869184 bytes."
PROTOBUF = "[libprotobuf FATAL google/protobuf/message_lite.cc:402] CHECK failed: (bytes) <= (INT_MAX): too large"
CHECK = "2026-11-27 13:00:00.000001: F external/xla/xla/stream_executor/cuda/cuda_driver.cc:217] Failed: out of memory"
ABORTED = f"Fatal Python error: Aborted{STACK}"
TEXTS = {
    "PyTorch, a worker of a DataLoader": (BAD, LOADER, BATCH),
    "PyTorch, a spawned process": (BAD, SPAWNED, BATCH),
    "PyTorch, memory of a GPU": (BAD, f"{AT}{TORCH}\n", TORCH),
    "CUDA in C++": (
        killed(6), f"terminate called after throwing an instance of 'c10::Error'\n  what():  {ASSERT}\nCUDA kernel\n",
        f"terminate called after throwing an instance of 'c10::Error' what():  {ASSERT}"),
    "TensorFlow, memory of a GPU": (BAD, f"{DUMP}{AT}{OOM}\n", ON_GPU),
    "TensorFlow, memory of a GPU, and a long good-bye": (BAD, f"{DUMP}{AT}{OOM}\n{WANDB * 9}", ON_GPU),
    "JAX": (
        BAD, f"{DUMP}{AT}{JAX}\n", f"{JAX} (out of memory on GPU 0: 16.00GiB asked for, 12.00GiB of 15.00GiB in use)"),
    "CUDA, a check that failed": (killed(6), f"{CHECK}\n{ABORTED}", CHECK),
    "protobuf": (
        killed(6), f"{PROTOBUF}\nterminate called after throwing an instance of 'google::protobuf::FatalException'\n"
        "  what():  CHECK failed: (bytes) <= (INT_MAX): too large\n",
        "terminate called after throwing an instance of 'google::protobuf::FatalException' what():  CHECK failed: "
        "(bytes) <= (INT_MAX): too large"),
    "protobuf, with faulthandler": (killed(6), f"{PROTOBUF}\n{ABORTED}", PROTOBUF),
    "faulthandler of many threads": (
        BAD, "Timeout (0:10:00)!\n" + 'Thread 0x1 (most recent call first):\n  File "a.py", line 3 in f\n\n' * 60,
        "Timeout (0:10:00)!"),
}  # fmt: skip


@pytest.mark.parametrize("name", TEXTS)
def test_text(name):
    exit, text, error = TEXTS[name]
    assert explain(exit, kept(text)).error == error
