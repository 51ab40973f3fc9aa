"""Test ENTRYPOINT_SHARDS in ranks of mpirun, in scripts, and in TensorFlow's worker servers."""

import json
from pathlib import Path
from typing import Any

import pytest
from hosts import LISTENS

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


@pytest.fixture
def two_hosts(hosts):
    """Start two hosts with the channels."""

    def start(mode: str, program: str = TELLS, **options):
        files = {"input/config/inputdataconfig.json": json.dumps(CHANNELS)}
        return hosts(2, code=program, mode=mode, each=2, base_files=files, **options)

    return start


def read(text: str) -> dict[str, tuple[str, str, int, int]]:
    return {
        key: (each["channel"], each["mode"], each["count"], each["index"]) for key, each in json.loads(text).items()
    }


def told(job) -> dict[str, dict[str, Any]]:
    """Return the written files of all hosts by rank or task."""
    files = [path for host in job.hosts.values() for path in (host.base / "output/data").glob("told-*")]
    return {path.name.removeprefix("told-"): read(path.read_text()) for path in sorted(files)}


def part(size: int, rank: int, local_rank: int, host: int) -> dict[str, tuple[str, str, int, int]]:
    return {
        "train": ("train-2" if local_rank else "train", "Pipe", 2, host),
        "words": ("words", "File", 2, local_rank),
        "all": ("all", "File", size, rank),
    }


def test_ranks_placed_by_user_options_of_mpirun_get_their_shards(two_hosts):
    job = two_hosts("mpi", hyperparameters={"sagemaker_mpi_custom_mpi_options": "--map-by node"})
    job.must_end(0)
    assert told(job) == {str(rank): part(4, rank, rank // 2, rank % 2) for rank in range(4)}


def test_mirrored_workers_have_the_shards_of_their_index(two_hosts):
    job = two_hosts("mwms")
    job.must_end(0)
    assert told(job) == {f"worker-{index}": part(4, index, index % 2, index // 2) for index in range(4)}


EVERYTHING = {name: (name, each.get("TrainingInputMode", "File"), 1, 0) for name, each in CHANNELS.items()}


@pytest.mark.parametrize("chief_trains", [True, False])
def test_chief_that_trains_has_a_shard(two_hosts, chief_trains):
    """The launcher recognises from the code whether the chief trains."""
    uses = "def main(tf):\n    tf.estimator.train_and_evaluate('chief')\n" if chief_trains else ""
    job = two_hosts("ps", uses + TELLS, environment=LISTENS, PS_CHIEF_FIRST="never")
    job.must_end(0)
    found = told(job)
    if chief_trains:
        places = {"chief-0": (0, 0, 0), "worker-0": (1, 1, 0), "worker-1": (2, 0, 1), "worker-2": (3, 1, 1)}
        assert found == {task: part(4, *place) for task, place in places.items()}
    else:
        assert found["chief-0"] == EVERYTHING
        assert [found[f"worker-{index}"]["all"][2:] for index in range(3)] == [(3, 0), (3, 1), (3, 2)]
        assert [found[f"worker-{index}"]["words"][2:] for index in range(3)] == [(1, 0), (2, 0), (2, 1)]


def test_environment_of_worker_servers_has_their_shards(two_hosts):
    """The servers run no Python of the user, so the dataset reads the numbers from the server's environment."""
    waits = "import time\nprint('trains', flush=True)\ntime.sleep(600)\n"
    job = two_hosts("ps", waits, environment=LISTENS, PS_WORKERS="server")
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
    job.stop()
    job.must_end(143)
