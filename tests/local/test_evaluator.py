"""Test the evaluator, a task outside the cluster with its own time limit after the other tasks have succeeded."""

from hosts import LISTENS

PS = {"sagemaker_entrypoint_ps_count": "1"}


def test_evaluator_has_time_after_the_success_of_all_others(hosts):
    job = hosts(3, "evaluates.py", mode="mwms", hyperparameters={"seconds": "3"}, EVALUATOR="last")
    job.must_end(0)
    there = [(host.base / "output/data/evaluated.json").exists() for host in job.hosts.values()]
    assert there == [False, False, True]
    assert "evaluator/0 ended: exit code 0" in job[3].log


def test_endless_evaluator_is_stopped_after_its_grace_and_the_job_succeeds(hosts):
    parameters = {**PS, "seconds": "600"}
    job = hosts(2, "evaluates.py", mode="ps", hyperparameters=parameters, environment=LISTENS, EVALUATOR="last",
                EVALUATOR_GRACE=2)  # fmt: skip
    job.must_end(0)
    assert "evaluator/0 stopped: killed by SIGTERM" in job[2].log


def test_failed_evaluator_fails_the_job(hosts):
    job = hosts(2, "evaluates.py", mode="mwms", hyperparameters={"seconds": "1", "fails": "true"}, EVALUATOR="last")
    said = "ValueError: the last checkpoint is worse than the first"
    assert job.must_end(1) == f"algo-2 evaluator/0 (exit code 1): {said}"


def test_job_succeeds_though_sigterm_ends_its_evaluator_early(hosts):
    job = hosts(2, "evaluates.py", mode="mwms", hyperparameters={"seconds": "600"}, EVALUATOR="last")
    job.says("evaluating", host=2)
    for number in (1, 2):
        job.says(f"worker/{number - 1} ended: exit code 0", host=number)
    job.stop()
    job.must_end(0)
    assert "evaluator/0 stopped: killed by SIGTERM" in job[2].log
