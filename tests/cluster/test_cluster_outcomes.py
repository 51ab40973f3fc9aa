"""Test the end of real trainings by TensorFlow and Horovod in containers. docs/outcomes.md has all other endings.

The surviving processes print their own errors, such as "Horovod has been shut down" or "Collective ops is aborted".
The failure text must still name the first fault. Figures are printed; limits are generous.
"""

import json
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import pytest
from containers import BUSY, Cluster, Ending
from variants import variants

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
SOON = 60  # seconds; says that nothing hung, however busy the machine. The figures say how soon it was


def train(cluster: StartCluster, way: str, **hyperparameters: str) -> Cluster:
    """Train in one of the modes of the outcome table, on three hosts in mode ps, else on two."""
    mode, _, workers = way.partition(" ")
    return cluster(
        program="trains_tf1.py" if way == "ps script" else "trains.py",
        mode=mode,
        hosts=3 if mode == "ps" else 2,
        hyperparameters=hyperparameters,
        environment={**BUSY, **SMALL, **(SERVER if workers == "server" else {})},
    )


def trained(job: Cluster, way: str) -> None:
    """Wait until all scripts take steps."""
    job.sees("] step 5", *(["algo-1"] if way == "ps server" else job.hosts))


def last_end(endings: Iterable[Ending]) -> float:
    return max(ending.finished for ending in endings)


class Row(NamedTuple):
    """A fault of a training, and the end of all hosts. `process`: words of the process to kill."""

    way: str
    host: str
    fault: str  # the script raises, the process is killed, or the host is killed
    code: int
    cause: str  # behind the host's name
    process: tuple[str, ...] = ("SM_USER_ENTRY_POINT=trains.py",)


RAISES, DIES, LOST = "raises", "its process is killed", "is killed"
ERROR = "(exit code 1): ValueError: row 17 of algo-"
GONE = "(lost: its connection closed"
OF_SERVERS = ("tf_server.py", '"task": {"type": "ps"')
OF_WORKERS = ("tf_server.py", '"task": {"type": "worker"')
ROWS = [
    Row("ps script", "algo-2", RAISES, 1, f"worker/0 {ERROR}2"),
    Row("ps server", "algo-1", RAISES, 1, f"chief/0 {ERROR}1"),
    Row("mwms", "algo-2", RAISES, 1, f"worker/1 {ERROR}2"),
    Row("mpi", "algo-2", RAISES, 1, f"rank 1 {ERROR}2"),
    Row("ps server", "algo-2", DIES, 137, "ps/1 (ended too early, killed by SIGKILL)", OF_SERVERS),
    Row("ps server", "algo-2", DIES, 137, "worker/0 (ended too early, killed by SIGKILL)", OF_WORKERS),
    Row("mwms", "algo-2", DIES, 137, "worker/1 (killed by SIGKILL)"),
    Row("mpi", "algo-2", DIES, 137, "rank 1 (killed by SIGKILL)"),
    Row("ps script", "algo-1", LOST, 69, GONE),
    Row("ps server", "algo-2", LOST, 69, GONE),
    Row("mwms", "algo-2", LOST, 69, GONE),
    Row("mpi", "algo-1", LOST, 69, GONE),
]
NAMED = {f"{row.way}, {row.host} {row.fault}, {row.cause.split(' (')[0]}": (row,) for row in ROWS}


# In each default run test_cluster_faults.py kills a worker and its host, local/test_outcome_table.py one of each kind.
@pytest.mark.parametrize("row", variants(NAMED, "mwms, algo-2 raises, worker/1", f"mpi, algo-1 {LOST}, {GONE}"))
def test_all_hosts_report_the_first_cause(cluster: StartCluster, figure: Figure, row: Row) -> None:
    with train(cluster, row.way, **({"raises": row.host} if row.fault == RAISES else {})) as job:
        began = None
        if row.fault != RAISES:
            trained(job, row.way)
            began = time.time()
        if row.fault == DIES:
            job.exec(row.host, "python3", "-c", KILL, *row.process)
        elif row.fault == LOST:
            job.kill(row.host)
        endings = job.wait()
        began = began or float(re.search(r"raises at (\d+\.\d+)", endings[row.host].log)[1])
        if row.fault == LOST:
            assert endings.pop(row.host).exit_code == 137
        assert {host: ending.exit_code for host, ending in endings.items()} == dict.fromkeys(endings, row.code)
        (text,) = {ending.failure for ending in endings.values()}
        assert str(text).startswith(f"{row.host} {row.cause}")
        figure(f"{row.way}, {row.host} {row.fault}: all hosts gone after", last_end(endings.values()) - began)
        assert last_end(endings.values()) - began < SOON


@pytest.mark.parametrize("way", variants({way: way for way in ("ps server", "mwms", "mpi")}, "mpi"))
def test_training_that_is_stopped_saves(cluster: StartCluster, figure: Figure, way: str) -> None:
    """Saving needs the parameter server or all workers, so these must still run."""
    with train(cluster, way) as job:
        trained(job, way)
        job.stop()
        endings = job.all_end()
        saved = json.loads((job.ml("algo-1") / "model" / "weight.json").read_text())
        assert saved["steps"] >= 5 and saved["weight"] > 0
        left = [float(at) for e in endings for at in re.findall(r"left after step \d+ at (\d+\.\d+)", e.log)]
        assert len(left) == (1 if way == "ps server" else 2)
        figure(f"{way}: from the last script's end to the last host's", last_end(endings) - max(left))
        assert last_end(endings) - max(left) < SOON


SLOW = """
import time
print("Python comes up", flush=True)
time.sleep(3)
"""


def test_sigterm_before_the_launcher_starts_ends_the_host(cluster: StartCluster, tmp_path: Path) -> None:
    """Linux drops a signal for a PID 1 that has no handler yet, unless it is blocked."""
    train = tmp_path / "train"
    own = (Path(__file__).parents[2] / "container/train").read_text()
    train.write_text(own.replace("import sys\n", f"import sys\n{SLOW}", 1))
    train.chmod(0o755)
    with cluster(program="waits.py", hosts=1, mounts=[f"{train}:/opt/venv/bin/train:ro"]) as job:
        job.sees("Python comes up")
        job.stop()
        (ending,) = job.all_end(143)
        assert "waiting" not in ending.log
