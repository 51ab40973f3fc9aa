"""Test that scripts for AWS's images, or of TensorFlow's tutorial, run unchanged and end on every host."""

import json
import shutil
from pathlib import Path

import pytest
from hosts import PROGRAMS
from sent import DATA_PARALLEL, PARAMETER_SERVER, by_sdk

needs_mpi = pytest.mark.skipif(
    not (shutil.which("mpirun") and Path("/usr/sbin/sshd").exists()), reason="needs Open MPI and an ssh daemon"
)


def foreign(name: str) -> dict[str, bytes]:
    return {"train.py": (PROGRAMS / "foreign" / name).read_bytes()}


@pytest.mark.more  # test_instance_groups.py has workers that serve, test_ps_ends.py one that waits for a file
@pytest.mark.tensorflow
def test_workers_that_wait_for_a_file_which_they_cannot_see_end_with_the_job(hosts, tmp_path):
    """With the name of AWS's images, and the file in each host's own folder."""
    (tmp_path / "shared").mkdir()
    sent = by_sdk("train.py", PARAMETER_SERVER, folder=str(tmp_path / "shared"), done="DONE")
    job = hosts(
        2,
        code=foreign("ps_renames_master.py"),
        hyperparameters=sent,
        environment={"ENTRYPOINT_PS_CHIEF_NAME": "master"},
    )
    assert job.end(within=300) == [0, 0]
    assert "tasks: master ps worker" in job[1].log
    assert "epoch 2, loss" in job[1].log and "model copied" in job[1].log
    assert "worker 0 serves" in job[2].log and "has seen DONE" not in job[2].log
    assert (job[1].base / "model/saved_model.pb").exists()


SERVES = """
import json, os, sys, time
task = json.loads(os.environ["TF_CONFIG"])["task"]["type"]
print("started as", task, "with", os.environ["SM_CURRENT_HOST"], flush=True)
if task != "ps" or "--stays" in sys.argv:
    time.sleep(600 if task == "ps" else 2)
"""


@pytest.mark.parametrize("stays", [True, False])
def test_a_script_that_is_its_own_parameter_servers(hosts, stays):
    """It is terminated with the job; one that leaves earlier is a failure, though its exit code is 0."""
    sent = by_sdk("train.py", PARAMETER_SERVER, **({"stays": True} if stays else {}))
    job = hosts(2, code={"train.py": SERVES}, hyperparameters=sent, environment={"ENTRYPOINT_PS_SERVERS": "script"})
    assert job.end() == ([0, 0] if stays else [1, 1])
    if stays:
        for number in (1, 2):
            assert f"ps/{number - 1}] started as ps with algo-{number}" in job[number].log
            assert f"ps/{number - 1} stopped: killed by SIGTERM" in job[number].log
    else:
        assert "(ended too early, exit code 0)" in job[1].failure.splitlines()[0]


LOOKS = """
import sys
import smdistributed.dataparallel as library
print("found", library.__file__, flush=True)
if "--torch" in sys.argv:
    import smdistributed.dataparallel.torch.distributed
"""


@needs_mpi
@pytest.mark.parametrize("own", [False, pytest.param(True, marks=pytest.mark.more)], ids=["ours", "the code's own"])
def test_the_data_parallel_library_is_there_if_asked_for(hosts, own):
    pytest.importorskip("mpi4py")
    code = {"train.py": LOOKS, **({"smdistributed/dataparallel/__init__.py": ""} if own else {})}
    job = hosts(2, code=code, hyperparameters=by_sdk("train.py", DATA_PARALLEL))
    assert job.end() == [0, 0]
    for number in (1, 2):
        where = "/code/smdistributed/" if own else "/entrypoint/stand_ins/smdistributed/"
        assert where in job.says(rf"algo-{number} rank {number - 1}\] found (.*)", host=number)[1]


@needs_mpi
def test_what_that_library_does_not_cover_is_in_the_failure_file(hosts):
    pytest.importorskip("mpi4py")
    job = hosts(1, code={"train.py": LOOKS}, hyperparameters=by_sdk("train.py", DATA_PARALLEL, torch=1))
    assert job.end() == [1]
    assert "ImportError: smdistributed.dataparallel.torch is not covered: this image trains Ten" in job[1].failure


def test_other_jobs_do_not_have_it(hosts):
    job = hosts(1, code={"train.py": LOOKS}, hyperparameters=by_sdk("train.py", {}))
    assert job.end() == [1]
    assert "ModuleNotFoundError: No module named 'smdistributed'" in job[1].failure


def test_model_parallelism_is_refused_at_once(hosts):
    distribution = {"sagemaker_mpi_enabled": True, "mp_parameters": {"partitions": 2}}
    job = hosts(2, code={"train.py": ""}, hyperparameters=by_sdk("train.py", distribution))
    assert job.end() == [78, 78]
    assert {"model-parallel" in json.dumps(failure) for failure in job.failures} == {True}
