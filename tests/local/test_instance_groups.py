"""Test heterogeneous clusters: roles by instance group, hosts outside the distribution, and their common end."""

import json
import re
import shlex
import signal

import pytest
from hosts import LISTENS, ROOT, entrypoint

GROUPS = {"data": [2, 1], "train": [4, 3]}  # as SageMaker lists them: in no order


@pytest.fixture
def grouped(hosts):
    """Run four hosts, two in each group; the distribution is for one of the groups."""

    def start(hyperparameters: dict[str, str], mode: str = "mwms", **options):
        hyperparameters = {"sagemaker_distribution_instance_groups": '["train"]', **hyperparameters}
        servers = {"SERVERS": "algo-1,algo-2"}
        return hosts(
            4, "serves_or_trains.py", mode=mode, hyperparameters=hyperparameters, groups=GROUPS, environment=servers,
            **options,
        )  # fmt: skip

    return start


def test_one_group_runs_ranks_and_the_other_runs_servers(grouped):
    job = grouped({}, "mpi", each=1, OUTSIDE_GRACE=0.5)
    job.must_end(0)
    told = job.json_of("told.json")
    assert [each.get("OMPI_COMM_WORLD_RANK") for each in told] == [None, None, "0", "1"]
    assert [each["SM_CURRENT_HOST"] for each in told] == ["algo-1", "algo-2", "algo-3", "algo-4"]
    assert [each["SM_CURRENT_INSTANCE_GROUP"] for each in told] == ["data", "data", "train", "train"]
    assert not [key for each in told[:2] for key in each if key.startswith(("OMPI_", "TF_CONFIG"))]
    assert "mpirun started" in job[3].log
    for number in (1, 2):  # what would serve for ever was told to end when training was over
        assert "] stopping" in job[number].log and "sshd" not in job[number].log
        assert (job.folder / "trained-algo-4").exists()


def test_scripts_outside_the_distribution_save_without_sigterm(grouped):
    job = grouped({"saves": "true"})
    job.must_end(0)
    for number in (1, 2):
        assert "] saved" in job[number].log and "] stopping" not in job[number].log
    configs = [json.loads(each.get("TF_CONFIG", "{}")) for each in job.json_of("told.json")]
    assert configs[:2] == [{}, {}]
    assert [config["task"] for config in configs[2:]] == [{"type": "worker", "index": n} for n in (0, 1)]
    assert len(configs[2]["cluster"]["worker"]) == 2


def test_one_group_runs_ps_and_the_other_chief_and_workers(hosts):
    groups, asked = {"train": [3, 1], "memory": [2]}, {"sagemaker_entrypoint_ps_groups": "memory"}
    job = hosts(3, "writes_tf_config.py", mode="ps", hyperparameters=asked, groups=groups, environment=LISTENS)
    job.must_end(0)
    tasks = [config["task"] for config in job.json_of("tf_config-*.json")]
    assert tasks == [{"type": "chief", "index": 0}, {"type": "worker", "index": 0}]
    assert "ps/0 started" in job[2].log and "prepare" not in job[2].log


def test_failed_host_outside_the_distribution_fails_the_job(grouped):
    text = grouped({"fails": "outside"}).must_end(1)
    assert re.match(r"algo-[12] script .*ValueError: no data to serve$", text)


def test_sigterm_reaches_every_group(grouped):
    job = grouped({"lasts": "true"})
    for number, says in ((1, "serving"), (2, "serving"), (3, "training"), (4, "training")):
        job.says(f"] {says}", host=number)
    job[1].kill(signal.SIGTERM)
    job.must_end(143)
    assert "] stopping" in job[1].log and "] stopping" in job[2].log


def test_missing_group_ends_the_job_on_every_host(hosts):
    asked = {"sagemaker_distribution_instance_groups": "gpus"}
    job = hosts(3, "tells.py", mode="mwms", hyperparameters=asked, groups={"train": [3, 1], "data": [2]})
    assert job.end() == [78, 78, 78]
    (text,) = {text.splitlines()[0].split(": ", 1)[1] for text in job.failures}
    assert "names instance group 'gpus'; wanted one of 'train', 'data'" in text


def test_documented_command_makes_the_instance_groups(tmp_path, no_leftovers):
    (text,) = re.findall(r"^    entrypoint (local (?:.*\\\n)*.*)", (ROOT / "docs/instance_groups.md").read_text(), re.M)
    (tmp_path / "train.py").write_text(
        "import os\nprint(os.environ['SM_CURRENT_INSTANCE_GROUP'], 'TF_CONFIG' in os.environ)\n"
    )
    result = entrypoint(*shlex.split(text.replace("\\\n", " ")), cwd=tmp_path)
    assert result.returncode == 0, result.stdout
    said = sorted(re.findall(r"\] (data|gpus) (True|False)$", result.stdout, re.M))
    assert said == [("data", "False"), ("gpus", "True"), ("gpus", "True")]
