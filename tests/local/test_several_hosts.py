"""Test several hosts: they start together and end together, with one exit code and one explanation."""

import json
import os
import re
import signal
import socket
import time

import pytest
from hosts import LISTENS, LONG
from waiting import eventually

MWMS = {"sagemaker_multi_worker_mirrored_strategy_enabled": "true"}
PS = {"sagemaker_parameter_server_enabled": "true"}
# A host that is killed is known by its closed connection, however long a silent one would be waited for.
QUICK = {"ENTRYPOINT_PEER_TIMEOUT": "60", "ENTRYPOINT_HEARTBEAT": "0.3"}
# A host that is frozen is known by its silence alone: long enough that a busy machine causes none.
SILENT = {"ENTRYPOINT_PEER_TIMEOUT": "6", "ENTRYPOINT_HEARTBEAT": "0.3"}


def tf_configs(job) -> list[dict]:
    return [
        json.loads(path.read_text())
        for host in job.hosts.values()
        for path in sorted((host.base / "output/data").glob("tf_config-*.json"))
    ]


def test_plain_scripts_on_three_hosts(hosts):
    job = hosts(3, "tells.py")
    assert job.end() == [0, 0, 0]
    told = job.json_of("told.json")
    assert [each["env"]["SM_CURRENT_HOST"] for each in told] == ["algo-1", "algo-2", "algo-3"]
    assert {each["env"]["SM_HOSTS"] for each in told} == {'["algo-1","algo-2","algo-3"]'}
    assert not [each for each in told if "TF_CONFIG" in each["env"]]
    warnings = [line for host in job.hosts.values() for line in host.log.splitlines() if "warning: 3 hosts" in line]
    assert len(warnings) == 1  # one host says it for all
    assert "ENTRYPOINT_MODE" in warnings[0]


def test_multi_worker_mirrored(hosts):
    job = hosts(3, "writes_tf_config.py", hyperparameters=MWMS, environment={"ENTRYPOINT_PROCESSES_PER_HOST": "2"})
    assert job.end() == [0, 0, 0]
    configs = tf_configs(job)
    assert len(configs) == 6
    assert len({json.dumps(config["cluster"]) for config in configs}) == 1
    assert len(set(configs[0]["cluster"]["worker"])) == 6
    assert sorted(config["task"]["index"] for config in configs) == list(range(6))
    assert {config["task"]["type"] for config in configs} == {"worker"}


def test_parameter_servers_with_scripts(hosts):
    job = hosts(3, "writes_tf_config.py", hyperparameters=PS, environment=LISTENS)
    assert job.end() == [0, 0, 0]
    configs = tf_configs(job)
    assert [(c["task"]["type"], c["task"]["index"]) for c in configs] == [("chief", 0), ("worker", 0), ("worker", 1)]
    assert {task: len(addresses) for task, addresses in configs[0]["cluster"].items()} == {
        "chief": 1,
        "worker": 2,
        "ps": 3,
    }
    assert configs[0]["environment"] == "cloud"


def test_nobody_leaves_before_the_last_script_has_ended(hosts):
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
    job = hosts(3, "train.py", code={"train.py": slow})
    job.says("script done", host=1)
    job.says("script done", host=3)
    (job.folder / "others are done").touch()
    while True:
        ends = [host.process.poll() for host in job.hosts.values()]
        if (job.folder / "last").exists():  # looked at after the hosts: later they may leave
            break
        assert ends == [None] * 3
        time.sleep(0.05)  # looks again; what is waited for is the file
    assert job.end() == [0, 0, 0]


@pytest.mark.more  # the outcome table has it
def test_one_host_comes_late(hosts):
    job = hosts(3, "tells.py", hyperparameters=MWMS, absent=("algo-1",))
    job.says(r"waiting for algo-1 \(\d+ s\)")  # every 10 s, and later on a busy machine
    job.says(r"algo-1  127\.\S+ +port \d+: Connection refused")
    assert "script" not in "".join(line for line in job[2].log.splitlines() if "started" in line)
    job.start("algo-1")
    assert job.end() == [0, 0, 0]


@pytest.mark.more  # the outcome table has it
def test_a_host_that_never_comes(hosts):
    # The other two have to meet in this time, on a busy machine, too.
    short = {"ENTRYPOINT_START_TIMEOUT": "20"}
    job = hosts(3, "tells.py", hyperparameters=MWMS, absent=("algo-3",), environment=short)
    assert job.end() == [68, 68]
    (text,) = set(job.failures)
    first, *table = text.splitlines()
    assert re.fullmatch(
        r"algo-3 \(did not appear within 20 s\): it is at 127\.\S+, port \d+: Connection refused \(over lo\)", first
    )
    assert table[0].split("  ")[0] == "host" and table[1].startswith("algo-3") and table[1].endswith("never")


@pytest.mark.more  # the outcome table has it
def test_an_exception_on_one_host_ends_all_alike(hosts):
    job = hosts(3, "raises.py", hyperparameters={**MWMS, "on": "algo-2"})
    assert job.end() == [1, 1, 1]
    assert len(set(job.failures)) == 1
    first = job.failures[0].splitlines()[0]
    assert first == "algo-2 worker/1 (exit code 1): ValueError: the loss of this host is too large"
    assert len(job.failures[0]) <= 1024


@pytest.mark.more  # the outcome table has it
@pytest.mark.parametrize("culprit", [pytest.param("algo-1", marks=pytest.mark.more), "algo-3"])
def test_an_exit_code_is_every_hosts(hosts, culprit):
    job = hosts(3, "exits.py", hyperparameters={**MWMS, "code": "3", "on": culprit})
    assert job.end() == [3, 3, 3]
    assert {text.split(" (")[0] for text in job.failures} == {f"{culprit} worker/{int(culprit[-1]) - 1}"}


def test_a_failure_where_nothing_is_shared(hosts):
    job = hosts(3, "exits.py", hyperparameters={"code": "3", "on": "algo-2"})
    assert job.end() == [3, 3, 3]
    assert set(job.failures) == {"algo-2 script (exit code 3): about to exit"}


@pytest.mark.more  # the outcome table has it
def test_sigkill_of_a_script(hosts):
    job = hosts(3, "sleeps.py", hyperparameters=MWMS)
    job.all_say("asleep")
    os.kill(job.pid_of("worker/1", host=2), signal.SIGKILL)
    assert job.end() == [137, 137, 137]
    assert {text.splitlines()[0] for text in job.failures} == {"algo-2 worker/1 (killed by SIGKILL)"}


def kill_host(job, number: int) -> None:
    """Kill a whole host at once and silently: its supervisor and all that it started."""
    from processes import processes_with

    base = str(job[number].base)
    job[number].kill()
    for pid in processes_with(base):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


@pytest.mark.parametrize("lost", [pytest.param(1, marks=pytest.mark.more), 2])
def test_a_host_is_lost(hosts, lost):
    job = hosts(3, "sleeps.py", hyperparameters=MWMS, environment=QUICK)
    job.all_say("asleep")
    kill_host(job, lost)
    codes = job.end()
    others = [number for number in (1, 2, 3) if number != lost]
    assert [codes[number - 1] for number in others] == [69, 69]
    ended = "its connection closed, and it accepts no new one"
    assert {job[number].failure for number in others} == {f"algo-{lost} (lost: {ended})"}


@pytest.mark.more  # the outcome table has it
def test_a_host_is_frozen(hosts):
    """Alive, but it does not answer. When it goes on it must not end with 0 either."""
    job = hosts(3, "exits.py", hyperparameters={**MWMS, "code": "0", "on": "algo-2"}, environment=SILENT)
    job.says("about to exit", host=2)
    eventually(lambda: "ended: exit code 0" in job[2].log, within=LONG)
    job[2].kill(signal.SIGSTOP)
    eventually(lambda: job[1].process.poll() is not None and job[3].process.poll() is not None, within=LONG)
    job[2].kill(signal.SIGCONT)
    assert job.end() == [69, 69, 69]


def test_a_frozen_coordinator_does_not_wake_to_a_success(hosts):
    job = hosts(2, "exits.py", hyperparameters={**MWMS, "code": "0", "on": "algo-1"}, environment=SILENT)
    job.says("worker/0 ended: exit code 0", host=1)
    job[1].kill(signal.SIGSTOP)
    eventually(lambda: job[2].process.poll() is not None, within=LONG)
    job[1].kill(signal.SIGCONT)
    assert job.end() == [69, 69]


@pytest.mark.more  # the outcome table has it
def test_stopped_all_save(hosts):
    job = hosts(3, "saves.py", hyperparameters=MWMS)
    job.all_say("asleep")
    job.signal(signal.SIGTERM)
    assert job.end() == [0, 0, 0]
    assert all((host.base / f"model/saved-{name}").exists() for name, host in job.hosts.items())
    assert job.failures == [None] * 3


@pytest.mark.more  # the outcome table has it
@pytest.mark.parametrize("told", [pytest.param(1, marks=pytest.mark.more), 3])
def test_one_host_is_told_to_stop_all_save(hosts, told):
    job = hosts(3, "saves.py", hyperparameters=MWMS)
    job.all_say("asleep")
    job[told].process.send_signal(signal.SIGTERM)
    assert job.end() == [0, 0, 0]
    assert all("saved\n" in host.log for host in job.hosts.values())


@pytest.mark.more  # the outcome table has it
def test_stopped_and_one_ignores_it(hosts):
    mixed = {
        "train.py": "import os, runpy\n"
        "name = 'ignores.py' if os.environ['SM_CURRENT_HOST'] == 'algo-2' else 'saves.py'\n"
        "runpy.run_path(name, run_name='__main__')\n"
    }
    from hosts import PROGRAMS

    code = {
        **mixed,
        "ignores.py": (PROGRAMS / "ignores_sigterm.py").read_text(),
        "saves.py": (PROGRAMS / "saves.py").read_text(),
    }
    job = hosts(3, "train.py", code=code, hyperparameters=MWMS, environment={"ENTRYPOINT_STOP_GRACE": "3"})
    job.all_say("asleep")
    job.signal(signal.SIGTERM)
    assert job.end() == [143, 143, 143]
    assert "saved\n" in job[1].log and "saved\n" in job[3].log


@pytest.mark.more  # the outcome table has it
def test_a_script_that_ignores_sigterm_does_not_hold_up_a_failed_job(hosts):
    code = (
        "import os, signal, sys, time\nsignal.signal(15, signal.SIG_IGN)\nprint('asleep', flush=True)\n"
        "time.sleep(2 if os.environ['SM_CURRENT_HOST'] == 'algo-1' else 600)\nsys.exit(9)\n"
    )
    job = hosts(2, "train.py", code={"train.py": code}, hyperparameters=MWMS)
    job.all_say("asleep")
    assert job.end() == [9, 9]


def test_the_code_cannot_be_installed_on_any_host(hosts):
    code = {"train.py": "print('started')", "requirements.txt": "--no-index\nno-such-distribution-of-anybody\n"}
    job = hosts(2, "train.py", code=code, hyperparameters=MWMS)
    assert job.end() == [65, 65]
    assert len(set(job.failures)) == 1
    first = job.failures[0].splitlines()[0]
    assert "prepare (exit code 65): requirements.txt in" in first
    assert "no-such-distribution-of-anybody" in first
    assert not any("started\n" in line for host in job.hosts.values() for line in host.log.splitlines())


def test_a_wrong_token_is_no_host_of_the_job(hosts):
    own = {"ENTRYPOINT_TOKEN": "right", "ENTRYPOINT_PEER_TIMEOUT": "2"}
    job = hosts(2, "tells.py", hyperparameters=MWMS, environment=own, absent=("algo-2",))
    job.environment["ENTRYPOINT_TOKEN"] = "wrong"
    job.start("algo-2")
    codes = job.end()
    assert codes == [78, 78]
    assert job[1].failure.startswith("algo-2 (was refused): wrong token")
    assert job[2].failure.startswith("algo-2 (is refused by the coordinator algo-1): wrong token")
    assert "right" not in job[1].log


def takes_connections(job, host: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(job.control_address(host)) == 0


@pytest.mark.parametrize("victim", [1, pytest.param(2, marks=pytest.mark.more)])
def test_a_launcher_that_is_started_again_is_no_host_of_this_job(hosts, victim):
    """It knows nothing of the past: its script would run a second time, and the job would call that a success."""
    text = "import time\nprint('at work', flush=True)\ntime.sleep(600)\n"
    patience = {"ENTRYPOINT_PEER_TIMEOUT": "60", "ENTRYPOINT_START_TIMEOUT": "60"}
    job = hosts(3, "train.py", code={"train.py": text}, environment=patience)
    job.all_say("at work")
    script = job.pid_of("script", host=victim)
    rest = [job[number] for number in (1, 2, 3) if number != victim]
    for other in rest:
        other.kill(signal.SIGSTOP)  # else they end the job as soon as the link closes, before the new launcher is up
    job[victim].kill()
    job[victim].process.wait()
    job.start(f"algo-{victim}")
    os.kill(script, signal.SIGKILL)  # in a container it would have gone with PID 1
    eventually(lambda: takes_connections(job, victim), within=LONG)
    time.sleep(1)  # for its first reports; a launcher that was heard by then and taken for the old one is the fault
    for other in rest:
        other.kill(signal.SIGCONT)
    codes = job.end()
    assert codes.pop(victim - 1) in (69, 68)  # 68: on a busy machine the others are gone before it is up
    assert codes == [69, 69]
    others = {text.splitlines()[0] for n, text in enumerate(job.failures, 1) if n != victim}
    # Started again, or, where that takes this machine longer, gone.
    told = [text.startswith(f"algo-{victim} (lost: its ") for text in others]
    # A coordinator that is started again may have told some that the first host to notice has left.
    assert any(told) if victim == 1 else all(told), others


def test_a_token_with_blanks_around_it(hosts):
    """HTTP has no blanks at the ends of a header."""
    job = hosts(2, "exits.py", environment={"ENTRYPOINT_TOKEN": " of-this-job  "})
    assert job.end() == [0, 0]


def test_a_broken_configuration_ends_every_host(hosts):
    job = hosts(3, "tells.py", hyperparameters={**MWMS, **PS})
    assert job.end() == [78, 78, 78]
    assert all("two modes at once" in text for text in job.failures)


@pytest.mark.parametrize("wrong", [pytest.param("algo-1", marks=pytest.mark.more), "algo-2"])
def test_a_configuration_that_is_broken_on_one_host_is_told_to_the_others(hosts, wrong):
    """Without that, they would wait for it until the start timeout."""
    job = hosts(3, "tells.py", hyperparameters=MWMS, absent=(wrong,))
    config = job.base(wrong) / "input/config/hyperparameters.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "sagemaker_entrypoint_restarts": "many"}))
    job.start(wrong)
    assert job.end() == [78, 78, 78]
    first = {text.splitlines()[0] for text in job.failures}
    assert first == {
        f"{wrong} (configuration): hyperparameter sagemaker_entrypoint_restarts is 'many'; "
        "wanted a whole number from 0 to 1000"
    }


def test_a_host_with_other_code_is_named(hosts):
    job = hosts(3, "tells.py", hyperparameters=MWMS, absent=("algo-3",))
    (job.base("algo-3") / "code" / "helper.py").write_text("VERSION = 2\n")
    job.start("algo-3")
    assert job.end() == [78, 78, 78]
    (first,) = {text.splitlines()[0] for text in job.failures}
    assert re.fullmatch(
        r"algo-3 \(differs from the other hosts\): the code is [0-9a-f]{12}; on algo-1 it is [0-9a-f]{12}", first
    )
    assert not any("worker/0 started" in host.log for host in job.hosts.values())


def test_a_host_with_another_plan_is_named(hosts):
    job = hosts(2, "tells.py", hyperparameters=MWMS, absent=("algo-2",))
    job.environment["ENTRYPOINT_PROCESSES_PER_HOST"] = "2"
    job.start("algo-2")
    assert job.end() == [78, 78]
    (first,) = {text.splitlines()[0] for text in job.failures}
    assert first.startswith("algo-2 (differs from the other hosts): the plan is 'MultiWorkerMirrored: 4 workers on 2")


def test_a_port_that_is_taken_is_named(hosts):
    job = hosts(2, "tells.py", hyperparameters=MWMS, absent=("algo-2",))
    port = 8890 + job.port_base + job.stride
    with socket.create_server(("", port)):
        job.start("algo-2")
        assert job.end() == [78, 78]
    (first,) = {text.splitlines()[0] for text in job.failures}
    assert first.startswith(f"algo-2 (port {port} is taken): worker/1 needs it")


def test_status_of_a_follower_and_of_the_coordinator(hosts):
    job = hosts(2, "sleeps.py", hyperparameters=MWMS)
    job.all_say("asleep")
    first, second = job.status(1), job.status(2)
    assert (first["role"], second["role"]) == ("coordinator", "follower")
    assert first["peers"]["algo-2"]["heard_seconds_ago"] < 60
    assert second["peers"]["algo-1"]["heard_seconds_ago"] < 60
    job.signal(signal.SIGTERM)
    assert job.end() == [143, 143]


@pytest.mark.more
def test_a_fast_job_of_many_hosts(hosts):
    job = hosts(6, "tells.py", hyperparameters=MWMS)
    assert job.end() == [0] * 6
