"""Test SIGTERM as StopTrainingJob and the maximum runtime send it: to every host, 120 s before SIGKILL."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from containers import Cluster, Ending

StartCluster = Callable[..., Cluster]
Figure = Callable[[str, float], None]

SOON = 60  # seconds, of the 100 of ENTRYPOINT_STOP_GRACE. The figures say how soon it was
MODES = [*(pytest.param(mode, marks=pytest.mark.more) for mode in ("single", "ps", "mwms")), "mpi"]


def heard(endings: dict[str, Ending]) -> list[float]:
    return [float(t) for e in endings.values() for t in re.findall(r"heard SIGTERM at (\d+\.\d+)", e.log)]


@pytest.mark.parametrize("mode", MODES)
def test_every_script_may_save_and_end_well(cluster: StartCluster, figure: Figure, mode: str) -> None:
    """Under MPI this takes longer than the second that Open MPI gives a rank by default."""
    ranks = 2 if mode == "mpi" else 1
    options = {"sagemaker_mpi_num_of_processes_per_host": 2} if mode == "mpi" else {}
    with cluster(program="saves.py", mode=mode, hyperparameters=options) as job:
        job.sees("] waiting", times=ranks)
        asked = job.stop()
        endings = job.wait()
        assert {host: ending.exit_code for host, ending in endings.items()} == dict.fromkeys(job.hosts, 0)
        for host, ending in endings.items():
            assert ending.log.count("] saved") == ranks
            assert ending.failure is None
            assert len([path for path in (ending.ml / "model").iterdir() if path.name.startswith(host)]) == ranks
        times = heard(endings)
        assert len(times) == 3 * ranks
        figure(f"{mode}: from `docker stop` to the last script that hears of it", max(times) - asked)
        assert max(times) - asked < SOON
        figure(f"{mode}: from the last script's end to the last host's", last_end(endings) - max(times) - 3)
        assert last_end(endings) - max(times) - 3 < SOON


def last_end(endings: dict[str, Ending]) -> float:
    return max(ending.finished for ending in endings.values())


@pytest.mark.more  # the outcome table has it
@pytest.mark.parametrize("mode", ["single", pytest.param("mpi", marks=pytest.mark.more)])
def test_script_that_does_nothing_about_it(cluster: StartCluster, figure: Figure, mode: str) -> None:
    with cluster(program="waits.py", mode=mode) as job:
        job.sees("] waiting")
        asked = job.stop()
        endings = job.wait()
        assert {host: ending.exit_code for host, ending in endings.items()} == dict.fromkeys(job.hosts, 143)
        figure(f"{mode}: from `docker stop` to the last host's end", last_end(endings) - asked)
        assert last_end(endings) - asked < SOON


@pytest.mark.more  # the outcome table has it
@pytest.mark.parametrize("mode", [pytest.param("ps", marks=pytest.mark.more), "mpi"])
def test_script_that_ignores_it_is_killed_in_time(cluster: StartCluster, mode: str) -> None:
    with cluster(program="ignores.py", mode=mode, environment={"ENTRYPOINT_STOP_GRACE": "3"}) as job:
        job.sees("] waiting")
        asked = job.stop()
        endings = job.wait()
        assert {host: ending.exit_code for host, ending in endings.items()} == dict.fromkeys(job.hosts, 143)
        assert 3 <= last_end(endings) - asked < SOON


@pytest.mark.more  # local/test_stop_budget.py has it, too
def test_one_host_that_is_told_tells_the_others(cluster: StartCluster) -> None:
    with cluster(program="saves.py", mode="mwms") as job:
        job.sees("] waiting")
        job.stop("algo-3")
        endings = job.wait()
        assert {host: ending.exit_code for host, ending in endings.items()} == dict.fromkeys(job.hosts, 0)
        assert len(heard(endings)) == 3


SLOW = """
import time
print("Python comes up", flush=True)
time.sleep(3)
"""


def test_stop_before_the_launcher_is_up(cluster: StartCluster, tmp_path: Path) -> None:
    """Linux drops a signal for a PID 1 that has no handler yet, unless it is blocked."""
    train = tmp_path / "train"
    train.write_text(
        (Path(__file__).parents[2] / "container/train").read_text().replace("import sys\n", f"import sys\n{SLOW}", 1)
    )
    train.chmod(0o755)
    with cluster(program="waits.py", hosts=1, mounts=[f"{train}:/opt/venv/bin/train:ro"]) as job:
        job.sees("Python comes up")
        job.stop()
        (ending,) = job.wait().values()
        assert ending.exit_code == 143
        assert "waiting" not in ending.log


def test_stop_before_anything_runs(cluster: StartCluster) -> None:
    """The others have not started, and will not come."""
    with cluster(program="waits.py", mode="mpi") as job:
        job.sees("ranks on 3 hosts")
        job.stop()
        endings = job.wait()
        assert {host: ending.exit_code for host, ending in endings.items()} == dict.fromkeys(job.hosts, 143)
