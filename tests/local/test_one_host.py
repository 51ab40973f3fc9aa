"""Test one host with one script: its environment, the report of its end, and the clean-up."""

import os
import signal

import pytest
from hosts import LONG
from waiting import eventually


def test_script_gets_its_environment_and_no_open_files_of_the_launcher(hosts):
    job = hosts(1, "tells.py", hyperparameters={"epochs": "3"}, environment={"MINE": "a b"})
    job.must_end(0)
    assert "[algo-1 script] told" in job[1].log
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


def test_launcher_exits_with_the_scripts_code(hosts):
    job = hosts(1, "exits.py", hyperparameters={"code": "3"})
    assert job.must_end(3) == "algo-1 script (exit code 3): about to exit"


def test_an_exception_is_reported_with_its_line(hosts):
    job = hosts(1, "raises.py", hyperparameters={"on": "algo-1"})
    said = "ValueError: the loss of this host is too large"
    assert job.must_end(1) == f"algo-1 script (exit code 1): {said}"
    assert 'raises.py", line 9, in <module>' in job[1].failure


def test_the_last_output_of_a_script_that_is_killed_is_reported(hosts):
    job = hosts(1, "sleeps.py")
    job.says("asleep")
    os.kill(job.pid_of("script"), signal.SIGKILL)
    job.must_end(137)
    assert job.failures == ["algo-1 script (killed by SIGKILL)\nasleep"]


def test_unwritable_output_folder_does_not_hide_the_failure(hosts):
    """A file replaces the folder here, as a full or read-only disk would, since root ignores permissions."""
    job = hosts(1, code="raise SystemExit(5)", base_files={"output": "not a folder"})
    assert job.end() == [5]
    assert job[1].log.count("so the failure file, the report cannot be kept") == 1
    assert "so the failure file, the report cannot be kept" in job[1].log.partition("] script started")[0]
    assert "the record of this host" not in job[1].log and "no report.html" not in job[1].log
    assert "failure cannot be written" in job[1].log
    assert "algo-1 script (exit code 5)" in job[1].log


@pytest.mark.parametrize(
    "prefix, lines",
    [
        (
            "",
            ["[algo-1 script] caf\ufffd", "[algo-1 script] to stderr", "[algo-1 script] é😀", "[algo-1 script] no end"],
        ),
        ("streams", ["[algo-1 script stderr] to stderr", "[algo-1 script stdout] é😀"]),
        ("false", ["é😀"]),
    ],
)
def test_lines_of_the_script_have_the_configured_prefix(hosts, prefix, lines):
    """Lines that are no text or have no line end have the prefix, too."""
    job = hosts(1, "speaks_oddly.py", **({"LOG_PREFIX": prefix} if prefix else {}))
    job.must_end(0)
    assert sorted(set(lines) & set(job[1].log.splitlines())) == sorted(lines)
    assert prefix != "false" or "[algo-1" not in job[1].log


def test_ended_orphans_are_reaped(hosts):
    hosts(1, "makes_zombies.py").must_end(0)


def test_status_answers_while_the_script_runs(hosts):
    job = hosts(1, "sleeps.py")
    job.says("asleep")

    def status() -> dict | None:
        try:
            return job.status()
        except OSError:
            return None

    told = eventually(status, within=LONG)
    assert told["phase"] == "running"
    assert [(p["name"], p["state"]) for p in told["processes"]] == [("prepare", "ended"), ("script", "running")]
    job.stop()
    job.must_end(143)


@pytest.mark.parametrize(
    "options, said",
    [
        ({"MODE": "horo"}, "ENTRYPOINT_MODE is 'horo'; wanted one of"),
        ({"base_files": {"input/config/resourceconfig.json": ""}}, "resourceconfig.json is empty"),
    ],
    ids=["setting", "file"],
)
def test_a_broken_configuration_is_reported_in_one_line(hosts, options, said):
    job = hosts(1, "tells.py", **options)
    assert said in job.must_end(78)
    assert len(job[1].failure.splitlines()) == 1 and "Traceback" not in job[1].log


LONG_MESSAGE = """
print("epoch 1")
numbers = "".join(f"[{number}, 1.4317296, 1.7578462, 1.9654009, 1.2135609, 1.8406544],\\n" for number in range(2000))
raise ValueError("Attempt to convert a value (PerReplica:{" + chr(10) + numbers + "}) with an unsupported type (X)")
"""


def test_failure_text_has_the_beginning_of_a_long_exception(hosts):
    """The kept last output contains only numbers of that message."""
    job = hosts(1, code=LONG_MESSAGE)
    said = "ValueError: Attempt to convert a value (PerReplica:{ ... }) with an unsupported type (X)"
    assert job.must_end(1) == f"algo-1 script (exit code 1): {said}"
    assert "line 4, in <module>" in job[1].failure


def test_folder_at_the_failure_files_path_does_not_hide_the_failure(hosts):
    script = 'import os\nos.makedirs(os.environ["SM_OUTPUT_DIR"] + "/failure/x")\nraise ValueError("too small")\n'
    job = hosts(1, code=script)
    assert "ValueError: too small" in job.must_end(1)
    assert "is a folder, which SageMaker does not read" in job[1].log


def test_strategy_of_another_mode_is_in_warning_and_failure_text(hosts):
    code = "class ParameterServerStrategy:\n    def __init__(self):\n        raise SystemExit('no servers')\n\n\n"
    job = hosts(1, code=f"{code}ParameterServerStrategy()\n")
    why = "train.py:6 makes ParameterServerStrategy, and the job has one host, which starts no parameter servers"
    job.must_end(1, f"algo-1 script (exit code 1): no servers; {why}")
    assert f"[algo-1 prepare] warning: {why}" in job[1].log
