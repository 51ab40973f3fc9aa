"""Test heterogeneous clusters: parts by instance group, hosts outside the distribution; all of them leave together."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hosts import ROOT

GROUPS = {"data": [2, 1], "train": [4, 3]}  # as SageMaker lists them: in no order
MPI = {"sagemaker_mpi_enabled": "true", "sagemaker_mpi_num_of_processes_per_host": "1"}
MWMS = {"sagemaker_multi_worker_mirrored_strategy_enabled": "true"}
PS = {"sagemaker_parameter_server_enabled": "true"}
ONLY_TRAIN = {"sagemaker_distribution_instance_groups": '["train"]'}
PROGRAM = "serves_or_trains.py"

needs_mpi = pytest.mark.skipif(
    not (shutil.which("mpirun") and Path("/usr/sbin/sshd").exists()), reason="needs Open MPI and an ssh daemon"
)


@pytest.fixture
def grouped(hosts):
    """Run four hosts, two in each group; the distribution is for one of the groups."""

    def start(hyperparameters: dict[str, str], **options):
        environment = {"SERVERS": "algo-1,algo-2", **options.pop("environment", {})}
        return hosts(
            4,
            PROGRAM,
            hyperparameters={**ONLY_TRAIN, **hyperparameters},
            groups=GROUPS,
            environment=environment,
            **options,
        )

    return start


@needs_mpi
def test_ranks_on_one_group_and_servers_on_the_other(grouped):
    pytest.importorskip("mpi4py")
    job = grouped(MPI, environment={"ENTRYPOINT_OUTSIDE_GRACE": "0.5"})
    assert job.end() == [0, 0, 0, 0]
    told = job.json_of("told.json")
    assert [each.get("OMPI_COMM_WORLD_RANK") for each in told] == [None, None, "0", "1"]
    assert [each["SM_CURRENT_HOST"] for each in told] == ["algo-1", "algo-2", "algo-3", "algo-4"]
    assert [each["SM_CURRENT_INSTANCE_GROUP"] for each in told] == ["data", "data", "train", "train"]
    assert not [key for each in told[:2] for key in each if key.startswith(("OMPI_", "TF_CONFIG"))]
    assert "mpirun started" in job[3].log
    for number in (1, 2):  # what would serve for ever was told to end when training was over
        assert "] stopping" in job[number].log and "sshd" not in job[number].log
        assert (job.folder / "trained-algo-4").exists()


def test_workers_on_one_group_and_servers_that_finish_their_work(grouped):
    job = grouped({**MWMS, "saves": "true"})
    assert job.end() == [0, 0, 0, 0]
    for number in (1, 2):
        assert "] saved" in job[number].log and "] stopping" not in job[number].log
    configs = [json.loads(each.get("TF_CONFIG", "{}")) for each in job.json_of("told.json")]
    assert configs[:2] == [{}, {}]
    assert [config["task"] for config in configs[2:]] == [{"type": "worker", "index": n} for n in (0, 1)]
    assert len(configs[2]["cluster"]["worker"]) == 2


@pytest.mark.parametrize(
    "where, first",
    [
        ("outside", "algo-1 script|algo-2 script"),
        pytest.param("inside", "algo-3 worker/0|algo-4 worker/1", marks=pytest.mark.more),
    ],
)
def test_a_failure_in_either_group_is_the_jobs(grouped, where, first):
    job = grouped({**MWMS, "fails": where})
    assert job.end() == [1, 1, 1, 1]
    (text,) = {text.splitlines()[0] for text in job.failures}
    assert text.startswith(tuple(first.split("|")))
    assert text.endswith("ValueError: no data to serve" if where == "outside" else "ValueError: the data is not there")


def test_a_stop_reaches_every_group(grouped):
    job = grouped({**MWMS, "lasts": "true"})
    for number, says in ((1, "serving"), (2, "serving"), (3, "training"), (4, "training")):
        job.says(f"] {says}", host=number)
    job[1].kill(signal.SIGTERM)
    assert job.end() == [143] * 4
    assert "] stopping" in job[1].log and "] stopping" in job[2].log


@pytest.mark.more  # the others here, with a stand-in for TensorFlow
@pytest.mark.tensorflow
def test_parameter_servers_on_one_group_and_the_chief_and_workers_on_another(hosts):
    job = hosts(
        3,
        "ps_tutorial.py",
        hyperparameters={**PS, "sagemaker_entrypoint_ps_groups": "memory"},
        groups={"train": [3, 1], "memory": [2]},
    )
    assert job.end(within=300) == [0, 0, 0]
    assert "chief/0] trained, loss" in job[1].log
    assert "serving ps 0" in job[2].log and "prepare" not in job[2].log
    assert "worker/0] joining" in job[3].log
    # It is known by what it does, as one that serves others.
    assert "worker/0: only serves processes that have ended; terminated" in job[3].log


def test_a_group_that_is_not_there_ends_the_job_on_every_host(hosts):
    job = hosts(
        3,
        PROGRAM,
        hyperparameters={**MWMS, "sagemaker_distribution_instance_groups": "gpus"},
        groups={"train": [3, 1], "data": [2]},
    )
    assert job.end() == [78, 78, 78]
    (text,) = {text.splitlines()[0].split(": ", 1)[1] for text in job.failures}
    assert "names instance group 'gpus'; wanted one of 'train', 'data'" in text


def test_the_command_of_the_documents(tmp_path, no_leftovers):
    (text,) = re.findall(r"^    (entrypoint local (?:.*\\\n)*.*)", (ROOT / "docs/instance_groups.md").read_text(), re.M)
    (tmp_path / "train.py").write_text(
        "import os\nprint(os.environ['SM_CURRENT_INSTANCE_GROUP'], 'TF_CONFIG' in os.environ)\n"
    )
    command = [sys.executable, "-m", *shlex.split(text.replace("\\\n", " "))]
    result = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0, result.stdout + result.stderr
    said = sorted(re.findall(r"\] (data|gpus) (True|False)$", result.stdout, re.M))
    assert said == [("data", "False"), ("gpus", "True"), ("gpus", "True")]
