"""Test one host with one script: what it is given, how its end is reported, what is left."""

import json
import os
import signal
from pathlib import Path

import pytest
from hosts import LONG
from waiting import eventually


def test_success(hosts):
    job = hosts(1, "tells.py")
    assert job.end() == [0]
    assert job.failures == [None]
    assert "[algo-1 script] told" in job[1].log


ARGUMENTS = {
    "quotes": 'it\'s "quoted"',
    "command": "$(touch /tmp/entrypoint-test-injected) `id` ; exit 3 && $HOME",
    "newline": "two\nlines\r\n\ttab",
    "unicode": "é😀\u2028中",
    "long": "x" * 2500,
    "blank": " ",
    "empty": "",
    "dashes": "--other",
    "glob": "* ? [a-z] \\ {a,b}",
}


def test_arguments_arrive_byte_for_byte(hosts):
    job = hosts(1, "tells.py", hyperparameters={key: json.dumps(value) for key, value in ARGUMENTS.items()})
    assert job.end() == [0]
    (told,) = job.json_of("told.json")
    assert told["argv"] == [word for key in sorted(ARGUMENTS) for word in (f"--{key}", ARGUMENTS[key])]
    for key, value in ARGUMENTS.items():
        assert told["env"][f"SM_HP_{key.upper()}"] == value
    assert not Path("/tmp/entrypoint-test-injected").exists()


@pytest.mark.more  # test_hyperparameters.py has it
def test_arguments_of_a_shell_script_arrive_byte_for_byte(hosts):
    script = '#!/bin/sh\nfor word in "$@"; do printf "%s\\0" "$word"; done > "$SM_OUTPUT_DATA_DIR/words"\n'
    job = hosts(
        1,
        "train.sh",
        code={"train.sh": script},
        hyperparameters={key: json.dumps(value) for key, value in ARGUMENTS.items()},
    )
    assert job.end() == [0]
    words = (job[1].base / "output/data/words").read_bytes().decode().split("\0")[:-1]
    assert words == [word for key in sorted(ARGUMENTS) for word in (f"--{key}", ARGUMENTS[key])]


def test_environment_of_the_script(hosts):
    job = hosts(1, "tells.py", hyperparameters={"epochs": "3"}, environment={"MINE": "a b"})
    assert job.end() == [0]
    (told,) = job.json_of("told.json")
    base = str(job[1].base)
    expected = {
        "SM_CURRENT_HOST": "algo-1", "SM_HOSTS": '["algo-1"]', "SM_HPS": '{"epochs":3}', "SM_HP_EPOCHS": "3",
        "SM_CHANNELS": '["train"]', "SM_CHANNEL_TRAIN": f"{base}/input/data/train", "SM_MODEL_DIR": f"{base}/model",
        "SM_OUTPUT_DATA_DIR": f"{base}/output/data", "SM_USER_ENTRY_POINT": "tells.py",
        "SM_NETWORK_INTERFACE_NAME": "eth0",
        "MINE": "a b",
    }  # fmt: skip
    assert {key: told["env"].get(key) for key in expected} == expected
    assert told["env"]["PYTHONPATH"].split(os.pathsep)[0] == f"{base}/code"
    assert told["cwd"] == f"{base}/code"
    assert told["stdin"] == ""
    assert told["fds"] == [0, 1, 2]  # nothing of ours is inherited
    assert not {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD} & set(told["ignored"] + told["blocked"])


@pytest.mark.parametrize("code", [3, *(pytest.param(code, marks=pytest.mark.more) for code in (1, 255))])
def test_the_scripts_exit_code_is_ours(hosts, code):
    job = hosts(1, "exits.py", hyperparameters={"code": str(code)})
    assert job.end() == [code]
    assert job.failures == [f"algo-1 script (exit code {code}): about to exit"]


def test_exception(hosts):
    job = hosts(1, "raises.py", hyperparameters={"on": "algo-1"})
    assert job.end() == [1]
    (failure,) = job.failures
    first = failure.splitlines()[0]
    assert first == "algo-1 script (exit code 1): ValueError: the loss of this host is too large"
    assert 'raises.py", line 9, in <module>' in failure


@pytest.mark.parametrize(
    "number, code, name",
    [
        (9, 137, "SIGKILL"),
        pytest.param(11, 139, "SIGSEGV", marks=pytest.mark.more),
        pytest.param(15, 143, "SIGTERM", marks=pytest.mark.more),
    ],
)
def test_a_script_that_is_killed(hosts, number, code, name):
    job = hosts(1, "sleeps.py")
    job.says("asleep")
    os.kill(job.pid_of("script"), number)
    assert job.end() == [code]
    assert job.failures == [f"algo-1 script (killed by {name})" + "\nasleep"]


def test_the_scripts_own_failure_file_is_left_alone(hosts):
    job = hosts(1, "writes_failure.py")
    assert job.end() == [4]
    assert job.failures == ["my own words"]


def test_an_output_folder_that_is_none_still_fails(hosts):
    """A full or read-only disk: root ignores permissions, so the folder is a file here."""
    job = hosts(1, "train.py", code={"train.py": "raise SystemExit(5)"}, base_files={"output": "not a folder"})
    assert job.end() == [5]
    assert job[1].log.count("so the failure file, the report cannot be kept") == 1
    assert "so the failure file, the report cannot be kept" in job[1].log.partition("] script started")[0]
    assert "the record of this host" not in job[1].log and "no report.html" not in job[1].log
    assert "failure cannot be written" in job[1].log
    assert "algo-1 script (exit code 5)" in job[1].log


def test_output_that_is_no_text_and_has_no_end(hosts):
    job = hosts(1, "speaks_oddly.py")
    assert job.end() == [0]
    lines = [line for line in job[1].log.splitlines() if line.startswith("[algo-1 script] ")]
    assert lines == [
        "[algo-1 script] caf\ufffd",
        "[algo-1 script] to stderr",
        "[algo-1 script] é😀",
        "[algo-1 script] no end",
    ]


def test_streams_told_apart(hosts):
    job = hosts(1, "speaks_oddly.py", environment={"ENTRYPOINT_LOG_PREFIX": "streams"})
    assert job.end() == [0]
    assert "[algo-1 script stderr] to stderr\n" in job[1].log
    assert "[algo-1 script stdout] é😀\n" in job[1].log


def test_no_prefix(hosts):
    job = hosts(1, "speaks_oddly.py", environment={"ENTRYPOINT_LOG_PREFIX": "false"})
    assert job.end() == [0]
    assert "\né😀\n" in job[1].log
    assert "[algo-1" not in job[1].log


def test_orphans_that_hold_stdout_hold_up_nothing_and_do_not_stay(hosts):
    job = hosts(1, "leaves_orphans.py")
    job.says("the script ends")
    assert job.end() == [0]  # they sleep for 600 s


def test_orphans_that_end_are_reaped(hosts):
    job = hosts(1, "makes_zombies.py")
    assert job.end() == [0]


def test_status_answers_while_the_script_runs(hosts):
    job = hosts(1, "sleeps.py")
    job.says("asleep")
    status = eventually(lambda: ready_status(job), within=LONG)
    assert status["phase"] == "running"
    assert [(p["name"], p["state"]) for p in status["processes"]] == [("prepare", "ended"), ("script", "running")]
    job.signal(signal.SIGTERM)
    assert job.end() == [143]


def ready_status(job):
    try:
        return job.status()
    except OSError:
        return None


def test_a_broken_configuration_is_said_in_one_line(hosts):
    job = hosts(1, "tells.py", environment={"ENTRYPOINT_MODE": "horo"})
    assert job.end() == [78]
    (failure,) = job.failures
    assert "ENTRYPOINT_MODE is 'horo'; wanted one of" in failure
    assert len(failure.splitlines()) == 1
    assert "Traceback" not in job[1].log


def test_no_resource_config(hosts):
    job = hosts(1, "tells.py", base_files={"input/config/resourceconfig.json": ""})
    assert job.end() == [78]
    assert "resourceconfig.json is empty" in job.failures[0]


# --- stopping ---


def test_a_stopped_script_that_saves_ends_well(hosts):
    job = hosts(1, "saves.py")
    job.says("asleep")
    job.signal(signal.SIGTERM)
    assert job.end() == [0]
    assert (job[1].base / "model/saved-algo-1").read_text() == "weights"
    assert job.failures == [None]


def test_a_stopped_script_that_just_dies(hosts):
    job = hosts(1, "sleeps.py")
    job.says("asleep")
    job.signal(signal.SIGTERM)
    assert job.end() == [143]
    assert job.failures == [None]  # asked to stop is no failure of the script


def test_a_script_that_ignores_the_stop_is_killed(hosts):
    job = hosts(1, "ignores_sigterm.py", environment={"ENTRYPOINT_STOP_GRACE": "1"})
    job.says("asleep")
    job.signal(signal.SIGTERM)
    assert job.end() == [143]


def test_stopped_while_the_code_is_installed(hosts):
    backend = (
        "import pathlib, time\ndef build_wheel(*_):\n    pathlib.Path('installing').touch()\n    time.sleep(600)\n"
    )
    project = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    job = hosts(
        1,
        "train.py",
        code={"train.py": "print('started')", "setup.py": "", "backend.py": backend, "pyproject.toml": project},
    )
    eventually((job[1].base / "code/installing").exists, within=LONG)
    job.signal(signal.SIGTERM)
    assert job.end() == [143]
    assert "[algo-1 script]" not in job[1].log


LONG_MESSAGE = """
print("epoch 1")
numbers = "".join(f"[{number}, 1.4317296, 1.7578462, 1.9654009, 1.2135609, 1.8406544],\\n" for number in range(2000))
raise ValueError("Attempt to convert a value (PerReplica:{" + chr(10) + numbers + "}) with an unsupported type (X)")
"""


def test_an_exception_with_a_long_message_is_told_by_its_beginning(hosts):
    """The last output that is kept holds nothing but numbers of that message."""
    job = hosts(1, "train.py", code={"train.py": LONG_MESSAGE})
    assert job.end() == [1]
    first, *details = job.failures[0].splitlines()
    said = "ValueError: Attempt to convert a value (PerReplica:{ ... }) with an unsupported type (X)"
    assert first == f"algo-1 script (exit code 1): {said}"
    assert "line 4, in <module>" in "\n".join(details)


def test_a_folder_in_place_of_the_failure_file_hides_no_failure(hosts):
    script = 'import os\nos.makedirs(os.environ["SM_OUTPUT_DIR"] + "/failure/x")\nraise ValueError("too small")\n'
    job = hosts(1, "train.py", code={"train.py": script})
    assert job.end() == [1]
    assert "ValueError: too small" in job.failures[0]
    assert "is a folder, which SageMaker does not read" in job[1].log


def test_a_strategy_that_the_mode_does_not_serve_is_warned_of_and_part_of_the_failure(hosts):
    code = "class ParameterServerStrategy:\n    def __init__(self):\n        raise SystemExit('no servers')\n\n\n"
    job = hosts(1, "train.py", code={"train.py": f"{code}ParameterServerStrategy()\n"})
    assert job.end() == [1]
    why = "train.py:6 makes ParameterServerStrategy, and the job has one host, which starts no parameter servers"
    assert f"[algo-1 prepare] warning: {why}" in job[1].log
    assert job[1].failure.startswith(f"algo-1 script (exit code 1): no servers; {why}")
