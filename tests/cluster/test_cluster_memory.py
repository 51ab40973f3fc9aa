"""Test lack of memory: it is reported with its figures if the kernel's counter shows it, and only then."""

from collections.abc import Callable

import pytest
from containers import Cluster, sh

StartCluster = Callable[..., Cluster]
LIMIT = "400m"


@pytest.mark.parametrize(
    "mode, process",
    [
        pytest.param("single", "script", marks=pytest.mark.more),
        pytest.param("mwms", "worker/1", marks=pytest.mark.more),
        ("mpi", "rank 2"),
    ],
    ids=["single", "mwms", "mpi"],
)
def test_a_process_that_the_kernel_kills_for_memory(cluster: StartCluster, mode: str, process: str) -> None:
    options = {"sagemaker_mpi_num_of_processes_per_host": 2} if mode == "mpi" else {}
    # The setting shows that it is not tried again, though it was killed by a signal.
    environment = {"ENTRYPOINT_RESTARTS": "3"}
    with cluster(
        program="hogs.py", mode=mode, hyperparameters={"on": "algo-2", **options}, environment=environment
    ) as job:
        sh("docker", "update", "--memory", LIMIT, "--memory-swap", LIMIT, job.container("algo-2"))
        endings = job.wait()
        assert {host: ending.exit_code for host, ending in endings.items()} == dict.fromkeys(job.hosts, 137)
        (text,) = {ending.failure.splitlines()[0] for ending in endings.values()}
        assert text.startswith(f"algo-2 {process} (killed by SIGKILL, out of memory): the kernel killed 1 process")
        assert "400 MiB limit" in text
        evidence = (endings["algo-1"].ml / "output/data/entrypoint-algo-1.txt").read_text()
        assert f"algo-2 {process}" in evidence


def test_a_sigkill_from_anybody_else_is_no_lack_of_memory(cluster: StartCluster) -> None:
    with cluster(program="waits.py", mode="mwms") as job:
        job.sees("] waiting")
        job.exec("algo-2", "pkill", "-KILL", "-f", "waits.py")
        endings = job.wait()
        assert {ending.exit_code for ending in endings.values()} == {137}
        assert not any("memory" in ending.failure + ending.log for ending in endings.values())
