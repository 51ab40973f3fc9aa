"""Test ENTRYPOINT_SHARDS in processes: ranks of mpirun, scripts, TensorFlow's worker servers."""

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from hosts import ROOT

TELLS = """
import json, os
from pathlib import Path
task = json.loads(os.environ.get("TF_CONFIG", "{}")).get("task", {})
name = os.environ.get("OMPI_COMM_WORLD_RANK") or f"{task['type']}-{task['index']}"
Path(os.environ["SM_OUTPUT_DATA_DIR"], f"told-{name}").write_text(os.environ["ENTRYPOINT_SHARDS"])
"""
PIPE = {"TrainingInputMode": "Pipe", "S3DistributionType": "FullyReplicated"}
CHANNELS = {
    "train": PIPE,
    "train-2": PIPE,
    "words": {"TrainingInputMode": "File", "S3DistributionType": "ShardedByS3Key"},
    "all": {},
}
MPI = {"sagemaker_mpi_enabled": "true", "sagemaker_mpi_num_of_processes_per_host": "2"}
MWMS = {"sagemaker_multi_worker_mirrored_strategy_enabled": "true", "sagemaker_entrypoint_processes_per_host": "2"}
PS = {"sagemaker_parameter_server_enabled": "true", "sagemaker_entrypoint_processes_per_host": "2"}
LISTENS = os.pathsep.join([str(ROOT / "tests" / "stand_ins"), str(ROOT)])  # a `tensorflow` that only listens

needs_mpi = pytest.mark.skipif(
    not (shutil.which("mpirun") and Path("/usr/sbin/sshd").exists()), reason="needs Open MPI and an ssh daemon"
)


@pytest.fixture
def two_hosts(hosts):
    def start(hyperparameters: dict[str, str], program: str = TELLS, **options):
        files = {"input/config/inputdataconfig.json": json.dumps(CHANNELS)}
        return hosts(2, hyperparameters=hyperparameters, code={"train.py": program}, base_files=files, **options)

    return start


def read(text: str) -> dict[str, tuple[str, str, int, int]]:
    return {
        key: (each["channel"], each["mode"], each["count"], each["index"]) for key, each in json.loads(text).items()
    }


def told(job) -> dict[str, dict[str, Any]]:
    """Return the files by rank or task, whatever host they ran on."""
    files = [path for host in job.hosts.values() for path in (host.base / "output/data").glob("told-*")]
    return {path.name.removeprefix("told-"): read(path.read_text()) for path in sorted(files)}


def part(size: int, rank: int, local_rank: int, host: int) -> dict[str, tuple[str, str, int, int]]:
    return {
        "train": ("train-2" if local_rank else "train", "Pipe", 2, host),
        "words": ("words", "File", 2, local_rank),
        "all": ("all", "File", size, rank),
    }


@pytest.mark.more  # the next one, where ranks are in no order; cluster/test_cluster_sharding.py
@needs_mpi
def test_ranks(two_hosts):
    pytest.importorskip("mpi4py")
    job = two_hosts(MPI)
    assert job.end() == [0, 0]
    assert told(job) == {str(rank): part(4, rank, rank % 2, rank // 2) for rank in range(4)}


@needs_mpi
def test_ranks_that_the_user_has_mpirun_place_otherwise(two_hosts):
    pytest.importorskip("mpi4py")
    job = two_hosts({**MPI, "sagemaker_mpi_custom_mpi_options": "--map-by node"})
    assert job.end() == [0, 0]
    assert told(job) == {str(rank): part(4, rank, rank // 2, rank % 2) for rank in range(4)}


def test_mirrored_workers(two_hosts):
    job = two_hosts(MWMS)
    assert job.end() == [0, 0]
    assert told(job) == {f"worker-{index}": part(4, index, index % 2, index // 2) for index in range(4)}


EVERYTHING = {name: (name, each.get("TrainingInputMode", "File"), 1, 0) for name, each in CHANNELS.items()}


@pytest.mark.parametrize("chief_trains", [True, False])
def test_parameter_servers(two_hosts, chief_trains):
    """Whether the chief trains is seen in the code."""
    uses = "def main(tf):\n    tf.estimator.train_and_evaluate('chief')\n" if chief_trains else ""
    job = two_hosts(PS, uses + TELLS, environment={"PYTHONPATH": LISTENS, "ENTRYPOINT_PS_CHIEF_FIRST": "never"})
    assert job.end() == [0, 0]
    found = told(job)
    if chief_trains:
        places = {"chief-0": (0, 0, 0), "worker-0": (1, 1, 0), "worker-1": (2, 0, 1), "worker-2": (3, 1, 1)}
        assert found == {task: part(4, *place) for task, place in places.items()}
    else:
        assert found["chief-0"] == EVERYTHING
        assert [found[f"worker-{index}"]["all"][2:] for index in range(3)] == [(3, 0), (3, 1), (3, 2)]
        assert [found[f"worker-{index}"]["words"][2:] for index in range(3)] == [(1, 0), (2, 0), (2, 1)]


def test_worker_servers(two_hosts):
    """No Python of the user's runs there: the dataset reads the numbers from the server's own environment."""
    environment = {"PYTHONPATH": LISTENS, "ENTRYPOINT_PS_WORKERS": "server"}
    job = two_hosts(PS, "import time\nprint('trains', flush=True)\ntime.sleep(600)\n", environment=environment)
    pids = [job.pid_of(f"worker/{index}", host) for index, host in ((0, 1), (1, 2), (2, 2))]
    found = [Path(f"/proc/{pid}/environ").read_text().split("\0") for pid in pids]
    shards = [
        read(entry.partition("=")[2]) for each in found for entry in each if entry.startswith("ENTRYPOINT_SHARDS=")
    ]
    assert [each["all"][2:] for each in shards] == [(3, 0), (3, 1), (3, 2)]
    assert [each["train"] for each in shards] == [
        ("train", "Pipe", 2, 0),
        ("train", "Pipe", 2, 1),
        ("train-2", "Pipe", 1, 0),
    ]
    job.says("trains")
    job.signal(signal.SIGTERM)
    assert job.end() == [143, 143]


def test_hosts_that_train_together_must_have_the_same_channels(two_hosts):
    """If only one of two instance groups had a channel, nobody would read the shards of the other's workers."""
    job = two_hosts(MWMS, absent=("algo-2",))
    file = job.base("algo-2") / "input/config/inputdataconfig.json"
    file.write_text(json.dumps({"other": {}}))
    job.start("algo-2")
    assert job.end() == [78, 78]
    assert "the set of channels is [other]" in job[1].failure
    assert told(job) == {}
