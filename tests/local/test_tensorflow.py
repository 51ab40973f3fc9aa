"""What needs TensorFlow: parameter servers and training over several processes. Slow to import."""

import os
import re
import signal

import pytest

pytestmark = pytest.mark.tensorflow
PS = {"sagemaker_parameter_server_enabled": "true"}


@pytest.fixture(autouse=True)
def tensorflow():
    pytest.importorskip("tensorflow")  # here and not above: collecting stays quick


def test_parameter_servers_with_scripts(hosts):
    from test_several_hosts import tf_configs

    job = hosts(3, "writes_tf_config.py", hyperparameters=PS)
    assert job.end() == [0, 0, 0]
    configs = tf_configs(job)
    assert [(c["task"]["type"], c["task"]["index"]) for c in configs] == [("chief", 0), ("worker", 0), ("worker", 1)]
    assert {task: len(addresses) for task, addresses in configs[0]["cluster"].items()} == {
        "chief": 1,
        "worker": 2,
        "ps": 3,
    }
    assert configs[0]["environment"] == "cloud"


def test_training_with_parameter_servers_and_tensorflow_servers(hosts):
    job = hosts(2, "ps_tutorial.py", hyperparameters=PS,
                environment={"ENTRYPOINT_PS_WORKERS": "server", "ENTRYPOINT_PS_COUNT": "1"})  # fmt: skip
    assert job.end(within=300) == [0, 0]
    assert "trained, loss" in job[1].log
    assert "serving ps 0" in job[1].log and "serving worker 0" in job[2].log


def test_training_with_mirrored_workers(hosts):
    job = hosts(2, "mwms_train.py", hyperparameters={"sagemaker_multi_worker_mirrored_strategy_enabled": "true"})
    assert job.end(within=300) == [0, 0]
    for number in (1, 2):
        assert "trained on 2 replicas" in job[number].log


def test_a_parameter_server_that_is_killed(hosts):
    job = hosts(2, "sleeps.py", hyperparameters=PS)
    job.says("serving ps 1", host=2)
    job.all_say("asleep")
    os.kill(job.pid_of("ps/1", host=2), signal.SIGKILL)
    assert job.end() == [137, 137]
    assert {text.splitlines()[0] for text in job.failures} == {"algo-2 ps/1 (ended too early, killed by SIGKILL)"}


def test_servers_stay_while_a_stopped_chief_saves(hosts):
    job = hosts(2, "saves.py", hyperparameters=PS, environment={"ENTRYPOINT_PS_WORKERS": "server"})
    job.says("asleep", host=1)
    job.says("serving ps 1", host=2)
    job.signal(signal.SIGTERM)
    assert job.end() == [0, 0]
    assert (job[1].base / "model/saved-algo-1").exists()


def test_the_tutorials_script_ends_though_its_workers_join_their_servers(hosts):
    job = hosts(2, "ps_tutorial.py", hyperparameters=PS)
    assert job.end(within=300) == [0, 0]
    assert "trained, loss" in job[1].log
    assert "joining" in job[2].log


def test_a_tf1_worker_does_not_wait_for_its_session(hosts):
    """Its session is there at once, not after the 30 s that it sleeps where the chief has made no variables yet."""
    job = hosts(2, "tf1_sessions.py", hyperparameters=PS)
    assert job.end(within=300) == [0, 0]
    waited = float(re.search(r"worker/0\] session after ([\d.]+) s", job[2].log).group(1))
    assert waited < 25
