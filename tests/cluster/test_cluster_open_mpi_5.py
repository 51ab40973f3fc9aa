"""Test MPI with Open MPI 5, whose runtime is PRRTE, on Python 3.13, on a stand-in for other people's images.

TEST_TRIXIE_IMAGE names one; else make_trixie.sh makes it, which takes minutes. The outcome table has many more cases;
its rows run with Open MPI 5 as well, on a machine that has it (test_outcome_table.py).
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from containers import Cluster, sh

pytestmark = [pytest.mark.more, pytest.mark.timeout(1800)]
PROGRAMS = Path(__file__).resolve().parents[1] / "programs"
SSH = ("ssh", "-F", "/run/entrypoint/ssh/ssh_config")

Start = Callable[..., Cluster]


@pytest.fixture(scope="module")
def trixie() -> str:
    if given := os.environ.get("TEST_TRIXIE_IMAGE"):
        return given
    if os.geteuid() != 0 or not (shutil.which("docker") and shutil.which("debootstrap")):
        pytest.skip("needs TEST_TRIXIE_IMAGE; or root, docker and debootstrap, to make one")
    return sh(str(Path(__file__).with_name("make_trixie.sh")), within=1200).stdout.splitlines()[-1]


@pytest.fixture
def start(trixie: str, tmp_path: Path) -> Start:
    def start(program: str, hosts: int = 2, code: str = "", **hyperparameters: str | int) -> Cluster:
        return Cluster(
            trixie,
            tmp_path,
            program=program,
            code=code or PROGRAMS / program,
            hosts=hosts,
            mode="mpi",
            hyperparameters=hyperparameters,
        )

    return start


def test_uneven_ranks_run_on_three_hosts(start: Start) -> None:
    options = {"sagemaker_mpi_num_of_processes_per_host": 2, "sagemaker_mpi_custom_mpi_options": "-np 5 -x A=b"}
    with start("mpi_sum.py", 3, **options) as job:
        job.all_end()
        assert "--prtemca plm_ssh_agent" in job.log("algo-1")  # it is version 5
        for rank, host in enumerate(["algo-1", "algo-1", "algo-2", "algo-2", "algo-3"]):
            assert f"[{host} rank {rank}] rank {rank} of 5: sum 5" in job.log(host)


@pytest.mark.parametrize(
    "action, code, what", [("raise", 1, "exit code 1): ValueError: rank 1"), ("kill", 137, "killed by SIGKILL")]
)
def test_a_rank_that_fails_is_named_by_all_hosts(start: Start, action: str, code: int, what: str) -> None:
    with start("mpi_sum.py", **{action: "1"}) as job:
        first, _ = job.all_end(code)
        assert str(first.failure).startswith(f"algo-2 rank 1 ({what}")


def test_ranks_have_time_to_save_beyond_the_limit_of_prrte(start: Start) -> None:
    """PRRTE kills 0.25 s after SIGTERM; the last rank takes 3 s, and the first ended long before."""
    with start("mpi_saves.py", sagemaker_mpi_num_of_processes_per_host=2) as job:
        job.sees("asleep", times=2)
        job.stop()
        job.all_end()
        assert [job.log(host).count("] saved") for host in job.hosts] == [2, 2]


def test_killed_host_is_reported_as_lost(start: Start) -> None:
    waits = "from mpi4py import MPI\nimport time\nprint('at work', flush=True)\ntime.sleep(600)\n"
    with start("train.py", 3, code=waits) as job:
        job.sees("] at work")
        # What hosts say of ssh and its daemon: it starts prted for mpirun, and nothing else for anybody.
        for command in (["id"], ["prted", "--daemonize"], ["PRTE_PREFIX=/tmp;export PRTE_PREFIX;/tmp/id"]):
            refused = job.exec("algo-1", *SSH, "algo-2", *command, check=False)
            assert refused.returncode == 126 and "refused: " in refused.stderr
        job.kill("algo-3")
        endings = job.wait("algo-1", "algo-2")
        assert [ending.exit_code for ending in endings.values()] == [69, 69]
        assert all(str(ending.failure).startswith("algo-3 (lost: ") for ending in endings.values())
