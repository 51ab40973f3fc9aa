"""Test Horovod's ranks on shards of different sizes: what ends them together, and what happens without it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from containers import BUSY, Cluster
from epochs import tfrecords

from entrypoint.launcher.job.channels import Distribution
from entrypoint.simulate.local_channels import LocalChannel

StartCluster = Callable[..., Cluster]


@pytest.mark.more  # unit/library has the counting; this is Horovod's part
def test_ranks_with_uneven_shards_end_together(cluster: StartCluster, tmp_path: Path) -> None:
    source = tmp_path / "data"
    for name, records in {"a": 21, "b": 19, "c": 10}.items():  # algo-1 gets a and c, algo-2 gets b
        tfrecords(source / name, [records], start=1)
    channel = LocalChannel(name="train", source=source, distribution=Distribution.SHARDED)
    with cluster(
        program="uneven.py",
        mode="mpi",
        hosts=2,
        channels={"train": channel},
        environment={
            **BUSY,
            "HOROVOD_STALL_CHECK_TIME_SECONDS": "2",
            "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "12",
            "TF_CPP_MIN_LOG_LEVEL": "2",
        },
    ) as job:
        endings = job.wait(within=400)
        assert {host: ending.exit_code for host, ending in endings.items()} == {"algo-1": 0, "algo-2": 0}
        told = [json.loads((endings[f"algo-{n + 1}"].ml / f"output/data/rank-{n}.json").read_text()) for n in (0, 1)]
        assert [each.pop("batches") for each in told] == [8, 5]
        expected = {"even_steps": 5, "taken": 5, "together": [5, 5, 5], "counted": 5, "fit": 10, "alone": "stalled"}
        assert told == [expected, expected]
        warning = "5 to 8: rank 0: 8 (31 records, 2 files); rank 1: 5 (19 records, 1 files)"
        assert warning in endings["algo-1"].log
