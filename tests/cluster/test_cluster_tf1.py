"""Test ENTRYPOINT_TF1=shim in containers: code for TensorFlow 1, as it is, on two hosts."""

from collections.abc import Callable
from pathlib import Path

import pytest
from containers import BUSY, PROGRAMS, Cluster

SHIM = {"ENTRYPOINT_TF1": "shim", "TF_CPP_MIN_LOG_LEVEL": "2", **BUSY}
SESSIONS = PROGRAMS.parents[1] / "programs/tf1_sessions.py"
BY_HAND = "import tensorflow.compat.v1 as tf\n\ntf.disable_eager_execution()\n"
pytestmark = pytest.mark.more  # local/test_tf1_local.py has the shim without Horovod


def test_ranks_of_horovod(cluster: Callable[..., Cluster]) -> None:
    """Variables of rank 0 reach all ranks, and gradients are averaged: 100 steps end between the ranks' own rows."""
    with cluster(program="horovod_tf1.py", mode="mpi", hosts=2, environment=SHIM) as job:
        endings = job.wait()
        assert [ending.exit_code for ending in endings.values()] == [0, 0]
        for rank, ending in enumerate(endings.values()):
            assert "begins at 1.0" in ending.log
            assert f"rank {rank} of 2 has ended at 2.250" in ending.log
            assert "before 3, after 2" in ending.log


def test_parameter_servers_of_the_script(cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    """ClusterSpec and Server come from TF_CONFIG; every task trains in a MonitoredTrainingSession."""
    text = SESSIONS.read_text()
    assert BY_HAND in text
    (tmp_path / "code").mkdir()
    (tmp_path / "code/train.py").write_text(text.replace(BY_HAND, "import tensorflow as tf\n\n"))
    with cluster(program="train.py", code=tmp_path / "code", mode="ps", hosts=2, environment=SHIM) as job:
        endings = job.wait()
        assert [ending.exit_code for ending in endings.values()] == [0, 0]
        assert all("trained" in ending.log for ending in endings.values())
