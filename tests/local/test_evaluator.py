"""Test the evaluator: a task beside the cluster, with its own time limit after the others' success."""

import signal

import pytest
from hosts import LISTENS, LONG
from waiting import eventually

MWMS = {"sagemaker_multi_worker_mirrored_strategy_enabled": "true"}
PS = {"sagemaker_parameter_server_enabled": "true", "sagemaker_entrypoint_ps_count": "1"}


@pytest.mark.parametrize("where, host", [pytest.param("first", 1, marks=pytest.mark.more), ("last", 3)])
def test_it_has_time_after_the_others_success(hosts, where, host):
    job = hosts(
        3, "evaluates.py", hyperparameters={**MWMS, "seconds": "3"}, environment={"ENTRYPOINT_EVALUATOR": where}
    )
    assert job.end() == [0, 0, 0]
    assert [(each.base / "output/data/evaluated.json").exists() for each in job.hosts.values()] == [
        number == host for number in (1, 2, 3)
    ]
    assert "evaluator/0 ended: exit code 0" in job[host].log


@pytest.mark.parametrize("mode", [pytest.param(MWMS, marks=pytest.mark.more), PS], ids=["mwms", "ps"])
def test_one_that_never_ends_is_stopped_after_the_grace_and_the_job_has_succeeded(hosts, mode):
    environment = {"ENTRYPOINT_EVALUATOR": "last", "ENTRYPOINT_EVALUATOR_GRACE": "2", **LISTENS}
    job = hosts(2, "evaluates.py", hyperparameters={**mode, "seconds": "600"}, environment=environment)
    assert job.end() == [0, 0]
    assert "evaluator/0 stopped: killed by SIGTERM" in job[2].log
    assert job.failures == [None, None]


def test_its_failure_is_the_jobs(hosts):
    job = hosts(
        2,
        "evaluates.py",
        hyperparameters={**MWMS, "seconds": "1", "fails": "true"},
        environment={"ENTRYPOINT_EVALUATOR": "last"},
    )
    assert job.end() == [1, 1]
    (first,) = {text.splitlines()[0] for text in job.failures}
    assert first == "algo-2 evaluator/0 (exit code 1): ValueError: the last checkpoint is worse than the first"


def test_sigterm_ends_it_early_and_the_others_success_stands(hosts):
    job = hosts(
        2, "evaluates.py", hyperparameters={**MWMS, "seconds": "600"}, environment={"ENTRYPOINT_EVALUATOR": "last"}
    )
    job.says("evaluating", host=2)
    for number in (1, 2):
        eventually(lambda number=number: f"worker/{number - 1} ended: exit code 0" in job[number].log, within=LONG)
    job.signal(signal.SIGTERM)
    assert job.end() == [0, 0]
    assert "evaluator/0 stopped: killed by SIGTERM" in job[2].log
