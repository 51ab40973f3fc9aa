"""Test jobs in which something goes wrong: every host ends soon, with one code and one explanation.

What is not here goes wrong while TensorFlow trains: test_cluster_outcomes.py.
The limits are generous, since the machine may be busy; the figures printed are what was measured.
"""

import re
from collections.abc import Callable

import pytest
from containers import Cluster, Ending

StartCluster = Callable[..., Cluster]
Figure = Callable[[str, float], None]

PROCESSES = {
    "single": ["script", "script", "script"],
    "ps": ["chief/0", "worker/0", "worker/1"],
    "mpi": ["rank 0", "rank 1", "rank 2"],
}
ABSENT, HOST_LOST = 68, 69
SOON = 60  # seconds; says that nothing hung, however busy the machine. The figures say how soon it was


def last_end(endings: dict[str, Ending]) -> float:
    return max(ending.finished for ending in endings.values())


def same_explanation(endings: dict[str, Ending]) -> str:
    """Return the first line of the failure text, which must be the same on all hosts."""
    texts = {ending.failure for ending in endings.values()}
    assert len(texts) == 1, texts
    text = texts.pop()
    assert text and len(text) <= 1024
    return text.splitlines()[0]


@pytest.mark.parametrize(
    "mode, culprit",
    [
        pytest.param("single", "algo-1", marks=pytest.mark.more),
        ("single", "algo-2"),
        pytest.param("ps", "algo-1", marks=pytest.mark.more),
        pytest.param("mpi", "algo-1", marks=pytest.mark.more),
    ],
)
def test_script_raises(cluster: StartCluster, figure: Figure, mode: str, culprit: str) -> None:
    with cluster(program="raises.py", mode=mode, hyperparameters={"on": culprit}) as job:
        endings = job.wait()
        assert {host: ending.exit_code for host, ending in endings.items()} == dict.fromkeys(job.hosts, 1)
        process = PROCESSES[mode][job.hosts.index(culprit)]
        assert (
            same_explanation(endings)
            == f"{culprit} {process} (exit code 1): ValueError: row 17 of {culprit} has no label"
        )
        assert "raises.py" in str(endings["algo-3"].failure), "the traceback reaches every host"
        raised = float(re.search(r"raises at (\d+\.\d+)", endings[culprit].log)[1])
        gone = last_end(endings) - raised
        figure(f"{mode}, {culprit} raises: all hosts gone after", gone)
        assert gone < SOON


@pytest.mark.parametrize(
    "mode, victim",
    [
        pytest.param("single", "algo-1", marks=pytest.mark.more),
        pytest.param("single", "algo-2", marks=pytest.mark.more),
        pytest.param("ps", "algo-2", marks=pytest.mark.more),
        pytest.param("mwms", "algo-1", marks=pytest.mark.more),
        ("mpi", "algo-1"),
    ],
)
def test_host_is_killed(cluster: StartCluster, figure: Figure, mode: str, victim: str) -> None:
    with cluster(program="waits.py", mode=mode) as job:
        job.sees("] waiting")
        killed = job.kill(victim)
        endings = job.wait()
        assert endings.pop(victim).exit_code == 137
        assert {host: e.exit_code for host, e in endings.items()} == dict.fromkeys(endings, HOST_LOST)
        assert same_explanation(endings).startswith(f"{victim} (lost: ")
        gone = last_end(endings) - killed
        figure(f"{mode}, {victim} is killed: the others gone after", gone)
        assert gone < SOON


@pytest.mark.more  # local/test_several_hosts.py has it, too
@pytest.mark.parametrize("victim", ["algo-1", pytest.param("algo-3", marks=pytest.mark.more)])
def test_host_freezes_and_thaws(cluster: StartCluster, figure: Figure, victim: str) -> None:
    """As with a live migration that takes too long: when the host comes back, the job is over, for it, too."""
    with cluster(program="waits.py", mode="mwms") as job:
        job.sees("] waiting")
        job.pause(victim)
        others = [host for host in job.hosts if host != victim]
        endings = job.wait(*others)
        assert {ending.exit_code for ending in endings.values()} == {HOST_LOST}
        assert same_explanation(endings).startswith(f"{victim} (lost: ")
        thawed = job.unpause(victim)
        late = job.wait(victim)[victim]
        assert late.exit_code != 0
        assert late.failure
        figure(f"{victim} thaws after the job's end: gone after", late.finished - thawed)


@pytest.mark.more  # the outcome table has it
def test_one_host_never_comes(cluster: StartCluster) -> None:
    with cluster(program="waits.py", mode="mpi", environment={"ENTRYPOINT_START_TIMEOUT": "20"}) as job:
        job.kill("algo-3")
        endings = job.wait("algo-1", "algo-2")
        assert all(ending.exit_code in (ABSENT, HOST_LOST) for ending in endings.values())
        assert same_explanation(endings).startswith("algo-3 (")
