"""Test that several hosts start together and end together, with one exit code and one failure text."""

import json
import os
import signal
import socket
import time

import pytest
from hosts import LISTENS, LONG
from waiting import eventually

# A host that is frozen is known by its silence alone: long enough that a busy machine causes none.
SILENT = {"PEER_TIMEOUT": 6, "HEARTBEAT": 0.3}


def test_plain_scripts_get_all_host_names_and_one_host_warns(hosts):
    job = hosts(3, "tells.py")
    job.must_end(0)
    told = [each["env"] for each in job.json_of("told.json")]
    assert [each["SM_CURRENT_HOST"] for each in told] == ["algo-1", "algo-2", "algo-3"]
    assert {each["SM_HOSTS"] for each in told} == {'["algo-1","algo-2","algo-3"]'}
    assert not [each for each in told if "TF_CONFIG" in each]
    (warning,) = [line for host in job.hosts.values() for line in host.log.splitlines() if "warning: 3 hosts" in line]
    assert "ENTRYPOINT_MODE" in warning


def test_mirrored_workers_share_one_cluster_and_differ_in_their_index(hosts):
    job = hosts(3, "writes_tf_config.py", mode="mwms", each=2)
    job.must_end(0)
    configs = job.json_of("tf_config-*.json")
    assert len(configs) == 6 and len({json.dumps(config["cluster"]) for config in configs}) == 1
    assert len(set(configs[0]["cluster"]["worker"])) == 6
    assert sorted(config["task"]["index"] for config in configs) == list(range(6))
    assert {config["task"]["type"] for config in configs} == {"worker"}


def test_scripts_of_a_ps_job_are_chief_and_workers(hosts):
    job = hosts(3, "writes_tf_config.py", mode="ps", environment=LISTENS)
    job.must_end(0)
    configs = job.json_of("tf_config-*.json")
    assert [(c["task"]["type"], c["task"]["index"]) for c in configs] == [("chief", 0), ("worker", 0), ("worker", 1)]
    assert {task: len(at) for task, at in configs[0]["cluster"].items()} == {"chief": 1, "worker": 2, "ps": 3}
    assert configs[0]["environment"] == "cloud"


def test_no_host_ends_before_the_last_script(hosts):
    """SageMaker's local mode ends the job when the first container does."""
    slow = """
import os, pathlib, time
shared = pathlib.Path(os.environ["TEST_FOLDER"])
if os.environ["SM_CURRENT_HOST"] == "algo-2":
    while not (shared / "others are done").exists():
        time.sleep(0.05)
    time.sleep(4)
    (shared / "last").touch()
print("script done")
"""
    job = hosts(3, code=slow)
    job.says("script done", host=1)
    job.says("script done", host=3)
    (job.folder / "others are done").touch()
    while True:
        ends = [host.process.poll() for host in job.hosts.values()]
        if (job.folder / "last").exists():  # looked at after the hosts: later they may leave
            break
        assert ends == [None] * 3
        time.sleep(0.05)  # looks again; what is waited for is the file
    job.must_end(0)


def test_frozen_coordinator_does_not_report_success_after_it_resumes(hosts):
    job = hosts(2, "exits.py", mode="mwms", hyperparameters={"code": "0", "on": "algo-1"}, **SILENT)
    job.says("worker/0 ended: exit code 0", host=1)
    job[1].kill(signal.SIGSTOP)
    eventually(lambda: job[2].process.poll() is not None, within=LONG)
    job[1].kill(signal.SIGCONT)
    assert job.end() == [69, 69]


def test_request_with_a_wrong_token_is_refused(hosts):
    job = hosts(2, "tells.py", mode="mwms", absent=("algo-2",), TOKEN="right", PEER_TIMEOUT=2)
    job.environment["ENTRYPOINT_TOKEN"] = "wrong"
    job.start("algo-2")
    assert job.end() == [78, 78]
    assert job[1].failure.startswith("algo-2 (was refused): wrong token")
    assert job[2].failure.startswith("algo-2 (is refused by the coordinator algo-1): wrong token")
    assert "right" not in job[1].log


def takes_connections(job, host: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(job.control_address(host)) == 0


def test_restarted_launcher_is_refused_by_the_running_job(hosts):
    """A restarted launcher has no state. Its script would run a second time, and the job would report a success."""
    text = "import time\nprint('at work', flush=True)\ntime.sleep(600)\n"
    job = hosts(3, code=text, PEER_TIMEOUT=60, START_TIMEOUT=60)
    job.all_say("at work")
    script = job.pid_of("script", host=1)
    for other in (job[2], job[3]):
        other.kill(signal.SIGSTOP)  # else they end the job as soon as the link closes, before the new launcher is up
    job[1].kill()
    job[1].process.wait()
    job.start("algo-1")
    os.kill(script, signal.SIGKILL)  # in a container it would have gone with PID 1
    eventually(lambda: takes_connections(job, 1), within=LONG)
    time.sleep(1)  # for its first reports; a launcher that was heard by then and taken for the old one is the fault
    for other in (job[2], job[3]):
        other.kill(signal.SIGCONT)
    first, *others = job.end()
    assert first in (69, 68)  # 68: on a busy machine the others are gone before it is up
    assert others == [69, 69]
    # Started again, or, where that takes this machine longer, gone. It may have told one that the other has left.
    assert any(text.startswith("algo-1 (lost: its ") for text in job.failures[1:])


def test_blanks_around_the_token_are_ignored(hosts):
    """HTTP removes blanks at both ends of a header."""
    hosts(2, "exits.py", TOKEN=" of-this-job  ").must_end(0)


def test_all_hosts_report_a_broken_configuration_of_one_host(hosts):
    """Without the report, the other hosts would wait for the start timeout."""
    job = hosts(3, "tells.py", mode="mwms", absent=("algo-2",))
    config = job.base("algo-2") / "input/config/hyperparameters.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "sagemaker_entrypoint_restarts": "many"}))
    job.start("algo-2")
    wrong = "hyperparameter sagemaker_entrypoint_restarts is 'many'; wanted a whole number from 0 to 1000"
    assert job.must_end(78) == f"algo-2 (configuration): {wrong}"


def other_code(job) -> None:
    (job.base("algo-2") / "code/helper.py").write_text("VERSION = 2\n")


def other_plan(job) -> None:
    job.environment["ENTRYPOINT_PROCESSES_PER_HOST"] = "2"


def other_channels(job) -> None:
    """Give algo-2 other channels. With a channel in only one of two groups, some shards would never be read."""
    (job.base("algo-2") / "input/config/inputdataconfig.json").write_text('{"other": {}}')


@pytest.mark.parametrize(
    "change, told",
    [
        (other_code, "the code is "),
        (other_plan, "the plan is 'MultiWorkerMirrored: 4 workers on 2"),
        (other_channels, "the set of channels is [other]"),
    ],
)
def test_host_with_a_different_configuration_is_named_before_scripts_start(hosts, change, told):
    job = hosts(2, "tells.py", mode="mwms", absent=("algo-2",))
    change(job)
    job.start("algo-2")
    job.must_end(78, f"algo-2 (differs from the other hosts): {told}")
    assert not any("worker/0 started" in host.log for host in job.hosts.values())


def test_port_in_use_is_named(hosts):
    job = hosts(2, "tells.py", mode="mwms", absent=("algo-2",))
    port = 8890 + job.port_base + job.stride
    with socket.create_server(("", port)):
        job.start("algo-2")
        job.must_end(78, f"algo-2 (port {port} is taken): worker/1 needs it")


def test_coordinator_and_follower_show_the_age_of_the_others_last_message(hosts):
    job = hosts(2, "sleeps.py", mode="mwms")
    job.all_say("asleep")
    first, second = job.status(1), job.status(2)
    assert (first["role"], second["role"]) == ("coordinator", "follower")
    assert first["peers"]["algo-2"]["heard_seconds_ago"] < 60
    assert second["peers"]["algo-1"]["heard_seconds_ago"] < 60
    job.stop()
    job.must_end(143)
