"""Test that what dies by chance is restarted, and that the training's result is as without the failure."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from containers import BUSY, Cluster
from test_cluster_examples import ROOT, number

StartCluster = Callable[..., Cluster]
Figure = Callable[[str, float], None]
Tell = Callable[[str], None]

PATIENCE = 420.0
WITHOUT_LOSS = 0.66  # nobody dead, it is 0.69 to 0.71 after all four epochs, 0.65 after one, and 0.5 after none


def kill(job: Cluster, host: str, process: str) -> None:
    """Send SIGKILL to the newest process of this name, whose pid is in the host's log."""
    pids = re.findall(rf"\] {process} started, pid (\d+)", job.log(host))
    job.exec(host, "kill", "-KILL", pids[-1])


@pytest.mark.more  # local/test_restarts_local.py does it without TensorFlow, and the next one with Horovod
@pytest.mark.parametrize("losses", [1, 2])
def test_worker_servers_that_are_all_lost(cluster: StartCluster, figure: Figure, clicks: Path, losses: int) -> None:
    """All are lost, so that only restarted ones can train, and training cannot be over before."""
    workers = {"algo-2": "worker/0", "algo-3": "worker/1"}
    with cluster(
        program="train.py",
        code=ROOT / "examples/deepfm",
        mode="ps",
        hyperparameters={
            "sagemaker_entrypoint_ps_workers": "server",
            "sagemaker_entrypoint_ps_count": 1,
            "batch-size": 8,  # long enough to be killed twice
            "learning-rate": 0.03,
        },
        environment={**BUSY, "ENTRYPOINT_RESTARTS": str(losses), "ENTRYPOINT_RESTART_BACKOFF": "0.5"},
        channels={"training": clicks},
    ) as job:
        for times in range(1, losses + 1):
            over = job.log("algo-1").count("/4 is over")
            job.sees("/4 is over", "algo-1", times=over + 1, within=PATIENCE)
            for host, worker in workers.items():
                kill(job, host, worker)
            for host, worker in workers.items():  # before the next epoch is waited for, which is theirs alone
                job.sees(f"{worker} started, pid", host, times=times + 1)
        endings = job.wait(within=PATIENCE)
        assert {host: ending.exit_code for host, ending in endings.items()} == dict.fromkeys(job.hosts, 0)
        for host, worker in workers.items():
            assert endings[host].log.count(f"{worker} ended: killed by SIGKILL") == losses
            assert endings[host].log.count(f"{worker} started, pid") == losses + 1
        auc = number(endings["algo-1"], r"evaluation auc=(\d\.\d+)")
        figure(
            f"DeepFM, ps, all workers lost {losses} times: AUC {auc} after",
            endings["algo-1"].finished - endings["algo-1"].started,
        )
        assert auc >= WITHOUT_LOSS


@pytest.mark.more  # local/test_restarts_local.py tries ranks again; test_cluster_outcomes.py has DeepFM's
def test_horovod_resumes_from_its_checkpoint(cluster: StartCluster, figure: Figure, clicks: Path) -> None:
    """A rank dies on a host that has no checkpoints: rank 0 has them and alone reads them."""
    with cluster(
        program="train.py",
        code=ROOT / "examples/deepfm",
        mode="mpi",
        hosts=2,
        hyperparameters={"batch-size": 32},  # long enough to be killed after an epoch
        environment={**BUSY, "ENTRYPOINT_RESTARTS": "1", "ENTRYPOINT_RESTART_BACKOFF": "0.5"},
        channels={"training": clicks},
    ) as job:
        job.sees("epoch 1/4 is over", "algo-1", within=PATIENCE)
        job.exec("algo-2", "pkill", "-KILL", "-f", "train.py")
        endings = job.wait(within=PATIENCE)
        assert {host: ending.exit_code for host, ending in endings.items()} == dict.fromkeys(job.hosts, 0)
        log = endings["algo-1"].log
        assert "attempt 0 failed: algo-2 rank 1 (killed by SIGKILL)" in log
        assert number(endings["algo-1"], r"begins at step (\d+): resumed behind epoch") > 0
        assert log.count("epoch 1/4 is over") == 1
        auc = number(endings["algo-1"], r"evaluation auc=(\d\.\d+)")
        figure(f"DeepFM, mpi, tried again: AUC {auc} after", endings["algo-1"].finished - endings["algo-1"].started)
        assert auc >= WITHOUT_LOSS
