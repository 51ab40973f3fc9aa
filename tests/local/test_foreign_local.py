"""Test that scripts for AWS's images run unchanged and end on every host."""

import json

import pytest
from sent import DATA_PARALLEL, PARAMETER_SERVER, by_sdk

SERVES = """
import json, os, sys, time
task = json.loads(os.environ["TF_CONFIG"])["task"]["type"]
print("started as", task, "with", os.environ["SM_CURRENT_HOST"], flush=True)
if task != "ps" or "--stays" in sys.argv:
    time.sleep(600 if task == "ps" else 2)
"""


@pytest.mark.parametrize("stays", [True, False])
def test_ps_script_that_exits_before_the_chief_fails_the_job(hosts, stays):
    """A script that serves as ps is terminated at the end. If it exits earlier, even with 0, the job fails."""
    sent = by_sdk("train.py", PARAMETER_SERVER, **({"stays": True} if stays else {}))
    job = hosts(2, code=SERVES, hyperparameters=sent, PS_SERVERS="script")
    if not stays:
        assert "(ended too early, exit code 0)" in job.must_end(1)
        return
    job.must_end(0)
    for number in (1, 2):
        assert f"ps/{number - 1}] started as ps with algo-{number}" in job[number].log
        assert f"ps/{number - 1} stopped: killed by SIGTERM" in job[number].log


@pytest.mark.more  # test_ps_ends.py has a worker that waits for a file, and others that serve, without TensorFlow
@pytest.mark.tensorflow
def test_workers_waiting_for_an_invisible_file_end_with_the_job(hosts, tmp_path):
    """The file has the name from AWS's images and is in a folder that other hosts cannot see."""
    (tmp_path / "shared").mkdir()
    sent = by_sdk("foreign/ps_renames_master.py", PARAMETER_SERVER, folder=str(tmp_path / "shared"), done="DONE")
    job = hosts(2, "foreign/ps_renames_master.py", hyperparameters=sent, PS_CHIEF_NAME="master")
    job.must_end(0, within=300)
    assert "tasks: master ps worker" in job[1].log
    assert "epoch 2, loss" in job[1].log and "model copied" in job[1].log
    assert "worker 0 serves" in job[2].log and "has seen DONE" not in job[2].log
    assert (job[1].base / "model/saved_model.pb").exists()


@pytest.mark.more  # test_ps_ends.py has a worker that joins, without TensorFlow
@pytest.mark.tensorflow
def test_tutorial_ends_with_its_chief_though_workers_join_their_servers(hosts, tmp_path):
    sent = by_sdk("foreign/ps_tutorial_fit.py", PARAMETER_SERVER, folder=str(tmp_path))
    job = hosts(2, "foreign/ps_tutorial_fit.py", hyperparameters=sent, PS_SERVERS="script")
    job.must_end(0, within=300)
    assert "fit has ended, loss" in job[1].log
    assert "worker/0] worker 0 joins its server" in job[2].log
    for number in (1, 2):
        assert f"ps/{number - 1}] ps {number - 1} joins its server" in job[number].log
    assert (tmp_path / "checkpoint-2/saved_model.pb").exists()


LOOKS = """
import sys
import smdistributed.dataparallel as library
print("found", library.__file__, flush=True)
if "--torch" in sys.argv:
    import smdistributed.dataparallel.torch.distributed
"""


@pytest.mark.parametrize(
    "own, where", [({}, "/entrypoint/stand_ins/smdistributed/"), ({"__init__.py": ""}, "/code/smdistributed/")]
)
def test_requested_data_parallel_library_can_be_imported(hosts, own, where):
    """If the code contains its own version of the library, that version is used."""
    code = {"train.py": LOOKS, **{f"smdistributed/dataparallel/{name}": text for name, text in own.items()}}
    job = hosts(1, code=code, mode="mpi", hyperparameters=by_sdk("train.py", DATA_PARALLEL))
    job.must_end(0)
    assert where in job.says(r"algo-1 rank 0\] found (.*)")[1]


def test_failure_file_names_unsupported_calls_of_the_data_parallel_library(hosts):
    job = hosts(1, code=LOOKS, mode="mpi", hyperparameters=by_sdk("train.py", DATA_PARALLEL, torch=1))
    job.must_end(1)
    assert "ImportError: smdistributed.dataparallel.torch is not covered: this image trains Ten" in job[1].failure


def test_jobs_without_the_request_have_no_data_parallel_library(hosts):
    job = hosts(1, code=LOOKS, hyperparameters=by_sdk("train.py", {}))
    assert "ModuleNotFoundError: No module named 'smdistributed'" in job.must_end(1)


def test_model_parallelism_is_refused_at_once(hosts):
    distribution = {"sagemaker_mpi_enabled": True, "mp_parameters": {"partitions": 2}}
    job = hosts(2, code="", hyperparameters=by_sdk("train.py", distribution))
    assert job.end() == [78, 78]
    assert {"model-parallel" in json.dumps(failure) for failure in job.failures} == {True}
