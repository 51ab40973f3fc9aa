"""Test instance groups in containers: roles by group, across hosts that reach one another only by name."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from containers import Cluster, Ending

StartCluster = Callable[..., Cluster]


def told(ending: Ending) -> dict[str, Any]:
    """Return what the processes of a host wrote, by the names of their files."""
    found = (ending.ml / "output/data").glob("*.json")
    return {path.stem: json.loads(path.read_text()) for path in sorted(found)}


def all_well(endings: dict[str, Ending]) -> list[Ending]:
    for ending in endings.values():
        assert (ending.exit_code, ending.failure) == (0, None), ending.host
    return list(endings.values())


@pytest.mark.more  # local/test_instance_groups.py has it, too
def test_parameter_servers_on_one_group_and_scripts_on_another(cluster: StartCluster) -> None:
    groups = {"memory": ["algo-1"], "compute": ["algo-3", "algo-2"]}
    environment = {"ENTRYPOINT_PS_GROUPS": "memory"}
    with cluster(program="grouped.py", mode="ps", groups=groups, environment=environment) as job:
        server, chief, worker = all_well(job.wait())
        assert told(server) == {}
        assert "[algo-1] ps/0 started" in server.log and "[algo-1] ps/0 stopped" in server.log
        for host, task in ((chief, "chief"), (worker, "worker")):
            facts = {"group": "compute", "task": {"type": task, "index": 0}, "servers": ["algo-1:2223"]}
            assert told(host) == {"task": facts}


def test_ranks_on_one_group_and_their_data_on_another(cluster: StartCluster) -> None:
    """The lowest host is outside the distribution; mpirun is on the lowest that is not."""
    switches = {
        "sagemaker_mpi_enabled": True,
        "sagemaker_mpi_num_of_processes_per_host": 2,
        "sagemaker_distribution_instance_groups": ["ranks"],
    }
    with cluster(
        program="grouped.py",
        hyperparameters=switches,
        groups={"data": ["algo-1"], "ranks": ["algo-3", "algo-2"]},
        environment={"ENTRYPOINT_OUTSIDE_GRACE": "0.5"},
    ) as job:
        outside, first, second = all_well(job.wait())
        rank = {"group": "ranks", "sum": 10, "rows": "seven rows"}
        assert told(first) == {"rank-0": rank, "rank-1": rank}
        assert told(second) == {"rank-2": rank, "rank-3": rank}
        assert told(outside) == {}
        assert "mpirun started" in first.log and "sshd" not in outside.log
        # It would have served for ever, and was told to end when training was over.
        assert "script stopped: killed by SIGTERM" in outside.log
