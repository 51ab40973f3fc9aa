"""Test a task that evaluates what the chief trains, beside TensorFlow's parameter-server cluster."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from containers import BUSY, Cluster

StartCluster = Callable[..., Cluster]
Figure = Callable[[str, float], None]


@pytest.mark.more  # local/test_evaluator.py has it without TensorFlow
def test_the_last_checkpoint_is_evaluated_after_the_chiefs_success(
    cluster: StartCluster, figure: Figure, tmp_path: Path
) -> None:
    (shared := tmp_path / "shared").mkdir()
    with cluster(
        program="evaluates.py",
        mode="ps",
        hyperparameters={"sagemaker_entrypoint_ps_workers": "server", "sagemaker_entrypoint_ps_count": 1},
        environment={**BUSY, "ENTRYPOINT_EVALUATOR": "last"},
        shared=shared,
    ) as job:
        endings = job.wait(within=420)
        assert {host: ending.exit_code for host, ending in endings.items()} == dict.fromkeys(job.hosts, 0)
        trained = re.search(r"chief/0\] trained at (\S+): (.*)", endings["algo-1"].log)
        evaluated = re.search(r"evaluator/0\] evaluated at (\S+): (.*)", endings["algo-3"].log)
        assert trained and evaluated
        assert trained[2] == evaluated[2], "not the model that the chief had in the end"
        losses = re.findall(r"evaluator/0\] 8/8 - .*loss: (\S+)", endings["algo-3"].log)
        assert losses and float(losses[-1]) < 0.1
        figure("evaluated after training's end by", float(evaluated[1]) - float(trained[1]))
        assert endings["algo-1"].finished > float(evaluated[1]), "the chief's host stays for the evaluator"
