"""Test rows of the outcome table (docs/outcomes.md) with real training: TensorFlow and Horovod, in containers.

Here the processes that are left behind say things of their own, such as "Horovod has been shut down" or "Collective ops
is aborted": the explanation must still be the first thing that went wrong. Figures are printed; limits are generous.
"""

import json
import re
import time
from collections.abc import Callable

import pytest
from containers import BUSY, Cluster, Ending

StartCluster = Callable[..., Cluster]
Figure = Callable[[str, float], None]

# Kills the one process whose command line and environment have the words given.
KILL = """
import os, sys
from pathlib import Path
found = []
for entry in Path("/proc").glob("[0-9]*"):
    text = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
    if int(entry.name) != os.getpid() and all(word.encode() in text for word in sys.argv[1:]):
        found.append(int(entry.name))
assert len(found) == 1, found
os.kill(found[0], 9)
"""
SERVER = {"ENTRYPOINT_PS_WORKERS": "server"}
SMALL = {"ENTRYPOINT_PEER_TIMEOUT": "5", "ENTRYPOINT_PS_COUNT": "2"}
HOST_LOST = 69
SOON = 60  # seconds; says that nothing hung, however busy the machine. The figures say how soon it was


def train(cluster: StartCluster, way: str, **hyperparameters: str) -> Cluster:
    """Train in one of the modes of the table: on three hosts with parameter servers, on two without."""
    mode, _, workers = way.partition(" ")
    return cluster(
        program="trains_tf1.py" if way == "ps script" else "trains.py",
        mode=mode,
        hosts=3 if mode == "ps" else 2,
        hyperparameters=hyperparameters,
        environment={**BUSY, **SMALL, **(SERVER if workers == "server" else {})},
    )


def trained(job: Cluster, way: str) -> None:
    """Wait until all scripts are in the middle of it."""
    job.sees("] step 5", *(["algo-1"] if way == "ps server" else job.hosts))


def kill(job: Cluster, host: str, *words: str) -> float:
    job.exec(host, "python3", "-c", KILL, *words)
    return time.time()


def last_end(endings: dict[str, Ending]) -> float:
    return max(ending.finished for ending in endings.values())


def all_end(endings: dict[str, Ending], code: int, explanation: str) -> None:
    assert {host: ending.exit_code for host, ending in endings.items()} == dict.fromkeys(endings, code)
    texts = {ending.failure for ending in endings.values()}
    assert len(texts) == 1, texts
    assert str(texts.pop()).splitlines()[0].startswith(explanation)


@pytest.mark.parametrize(
    "way, host, process",
    [
        pytest.param("ps script", "algo-2", "worker/0", marks=pytest.mark.more),
        pytest.param("ps server", "algo-1", "chief/0", marks=pytest.mark.more),
        pytest.param("mwms", "algo-1", "worker/0", marks=pytest.mark.more),
        ("mwms", "algo-2", "worker/1"),
        pytest.param("mpi", "algo-2", "rank 1", marks=pytest.mark.more),
    ],
)
def test_script_raises(cluster: StartCluster, figure: Figure, way: str, host: str, process: str) -> None:
    with train(cluster, way, raises=host) as job:
        endings = job.wait()
        all_end(endings, 1, f"{host} {process} (exit code 1): ValueError: row 17 of {host} has no label")
        raised = float(re.search(r"raises at (\d+\.\d+)", endings[host].log)[1])
        figure(f"{way}, {host} raises: all hosts gone after", last_end(endings) - raised)
        assert last_end(endings) - raised < SOON


# test_cluster_faults.py kills a worker in a container, local/test_outcome_table.py one of each kind.
@pytest.mark.parametrize(
    "way, words, what",
    [
        pytest.param("mwms", ["SM_USER_ENTRY_POINT=trains.py"], "worker/1 (killed by SIGKILL)", marks=pytest.mark.more),
        pytest.param("mpi", ["SM_USER_ENTRY_POINT=trains.py"], "rank 1 (killed by SIGKILL)", marks=pytest.mark.more),
        pytest.param(
            "ps server",
            ["tf_server.py", '"task": {"type": "ps"'],
            "ps/1 (ended too early, killed by SIGKILL)",
            marks=pytest.mark.more,
        ),
        pytest.param(
            "ps server",
            ["tf_server.py", '"task": {"type": "worker"'],
            "worker/0 (ended too early, killed by SIGKILL)",
            marks=pytest.mark.more,
        ),
    ],
)
def test_process_is_killed(cluster: StartCluster, figure: Figure, way: str, words: list[str], what: str) -> None:
    with train(cluster, way) as job:
        trained(job, way)
        killed = kill(job, "algo-2", *words)
        endings = job.wait()
        all_end(endings, 137, f"algo-2 {what}")
        figure(f"{way}, {what.split(' (')[0]} is killed: all hosts gone after", last_end(endings) - killed)
        assert last_end(endings) - killed < SOON


@pytest.mark.parametrize(
    "way, host",
    [
        pytest.param("ps script", "algo-1", marks=pytest.mark.more),
        pytest.param("ps server", "algo-2", marks=pytest.mark.more),
        pytest.param("mwms", "algo-2", marks=pytest.mark.more),
        pytest.param("mpi", "algo-2", marks=pytest.mark.more),  # test_cluster_failures.py has it without TensorFlow
    ],
)
def test_host_is_killed(cluster: StartCluster, figure: Figure, way: str, host: str) -> None:
    with train(cluster, way) as job:
        trained(job, way)
        killed = job.kill(host)
        endings = job.wait()
        assert endings.pop(host).exit_code == 137
        all_end(endings, HOST_LOST, f"{host} (lost: its connection closed")
        figure(f"{way}, {host} is killed: the others gone after", last_end(endings) - killed)
        assert last_end(endings) - killed < SOON


@pytest.mark.more  # local/test_outcome_table.py and local/test_faults.py cut hosts off
@pytest.mark.parametrize("way", ["mwms", "mpi"])
def test_host_is_cut_off(cluster: StartCluster, figure: Figure, way: str) -> None:
    with train(cluster, way) as job:
        trained(job, way)
        cut = job.disconnect("algo-2")
        endings = job.wait()
        figure(f"{way}, algo-2 is cut off: all hosts gone after", last_end(endings) - cut)
        assert last_end(endings) - cut < SOON
        all_end({"algo-2": endings.pop("algo-2")}, HOST_LOST, "algo-1 (lost: no report for ")
        all_end(endings, HOST_LOST, "algo-2 (lost: no report for ")


@pytest.mark.parametrize(
    "way", [pytest.param("ps server", marks=pytest.mark.more), pytest.param("mwms", marks=pytest.mark.more), "mpi"]
)
def test_training_that_is_stopped_saves(cluster: StartCluster, figure: Figure, way: str) -> None:
    """The weight is on a parameter server, or agreed on by all: the others must still run."""
    with train(cluster, way) as job:
        trained(job, way)
        job.stop()
        endings = job.wait()
        assert {host: ending.exit_code for host, ending in endings.items()} == dict.fromkeys(job.hosts, 0)
        assert [ending.failure for ending in endings.values()] == [None] * len(job.hosts)
        saved = json.loads((job.ml("algo-1") / "model" / "weight.json").read_text())
        assert saved["steps"] >= 5 and saved["weight"] > 0
        left = [float(at) for e in endings.values() for at in re.findall(r"left after step \d+ at (\d+\.\d+)", e.log)]
        assert len(left) == (1 if way == "ps server" else 2)
        figure(f"{way}: from the last script's end to the last host's", last_end(endings) - max(left))
        assert last_end(endings) - max(left) < SOON
