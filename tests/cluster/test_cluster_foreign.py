"""Test scripts that were written for AWS's images, in containers, with what SageMaker's SDK sends for them."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from containers import BUSY, Cluster, Ending, run_alone
from sent import DATA_PARALLEL, PARAMETER_SERVER, by_sdk, mpi

FOREIGN = Path(__file__).resolve().parents[1] / "programs/foreign"
StartCluster = Callable[..., Cluster]
StartForeign = Callable[..., Cluster]


@pytest.fixture
def foreign(cluster: StartCluster, tmp_path: Path) -> StartForeign:
    """Return `with foreign(script, distribution, **hyperparameters) as job:` on two hosts."""

    def start(script: str, distribution: dict, shared: Path | None = None, **users: object) -> Cluster:
        code, environment = tmp_path / "code", {**BUSY, **users.pop("environment", {})}
        code.mkdir()
        shutil.copy(FOREIGN / script, code / "train.py")
        hyperparameters = by_sdk("train.py", distribution, **users)
        how = {"hyperparameters": hyperparameters, "environment": environment}
        return cluster(program="train.py", code=code, hosts=2, shared=shared, **how)

    return start


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """Return a folder that every host has as /opt/ml/checkpoints."""
    folder = tmp_path / "efs"
    folder.mkdir()
    return folder


def all_well(endings: dict[str, Ending]) -> list[Ending]:
    for ending in endings.values():
        assert (ending.exit_code, ending.failure) == (0, None), ending.host
    return list(endings.values())


def told(endings: list[Ending]) -> list[dict]:
    """Return what the ranks of each host wrote, in rank order, with the host."""
    found = [
        {**json.loads(path.read_text()), "host": ending.host}
        for ending in endings
        for path in (ending.ml / "output/data").glob("rank-*.json")
    ]
    return sorted(found, key=lambda each: each["rank"])


def places(ranks: list[dict]) -> list[tuple[str, int, int]]:
    return [(each["host"], each["local_rank"], each["size"]) for each in ranks]


# More ranks than cores: the ones that wait leave their core to others.
SHARED_CORES = "--mca mpi_yield_when_idle 1"
TWO_ON_EACH = [("algo-1", 0, 4), ("algo-1", 1, 4), ("algo-2", 0, 4), ("algo-2", 1, 4)]


def all_alike(ranks: list[dict]) -> bool:
    """Return whether ranks that began with different weights ended with the same: a test of broadcast and reduction."""
    return len({tuple(each["weights"]) for each in ranks}) == 1


@pytest.mark.more  # local/test_foreign_local.py has it with a folder that they do not share
def test_workers_serve_until_the_chief_writes_a_file_to_a_shared_folder(foreign: StartForeign, shared: Path) -> None:
    users = {"folder": "/opt/ml/checkpoints", "poll": 0.1}
    with foreign("ps_renames_master.py", PARAMETER_SERVER, shared, **users) as job:
        chief, worker = all_well(job.wait(within=400))
        assert "tasks: chief ps worker" in chief.log
        assert "epoch 2, loss" in chief.log and "model copied" in chief.log
        assert "worker 0 has seen DONE" in worker.log
        assert (chief.ml / "model/saved_model.pb").exists()


def test_an_estimator_trains_evaluates_exports_and_ends(foreign: StartForeign, shared: Path) -> None:
    with foreign("estimator.py", PARAMETER_SERVER, shared, model_dir="/opt/ml/checkpoints") as job:
        master, worker = all_well(job.wait(within=400))
        assert "task master 0, filters /job:ps /job:master" in master.log
        assert "task worker 0, filters /job:ps /job:worker/task:0" in worker.log
        assert all("train_and_evaluate has ended" in host.log for host in (master, worker))
        assert list((shared / "export/last").glob("*/saved_model.pb")), "the master has not evaluated"
        assert list((master.ml / "model").glob("*/saved_model.pb"))
        assert not list((worker.ml / "model").iterdir())


@pytest.mark.more  # local/test_ps_ends.py has workers that serve, without TensorFlow
@pytest.mark.parametrize("servers", ["server", "script"])
def test_the_tutorials_fit_ends_though_workers_and_ps_join_their_servers(
    foreign: StartForeign, shared: Path, servers: str
) -> None:
    """The launcher runs the parameter servers, as on AWS's images; or the script does, by a setting."""
    users = {"folder": "/opt/ml/checkpoints", "environment": {"ENTRYPOINT_PS_SERVERS": servers}}
    with foreign("ps_tutorial_fit.py", PARAMETER_SERVER, shared, **users) as job:
        chief, worker = all_well(job.wait(within=400))
        assert "fit has ended, loss" in chief.log
        assert "] worker 0 joins its server" in worker.log
        for number, host in enumerate((chief, worker)):
            joins = f"[{host.host} ps/{number}] ps {number} joins its server"
            assert (joins in host.log) is (servers == "script")
        assert (shared / "checkpoint-2/saved_model.pb").exists()


@pytest.mark.more  # the next one has as many ranks of the same Horovod
def test_horovod_ranks_are_pinned_and_rank_0_saves(foreign: StartForeign) -> None:
    options = f"-verbose -x HOROVOD_CYCLE_TIME=2 --NCCL_DEBUG=WARN -x orte_base_help_aggregate=0 {SHARED_CORES}"
    with foreign("horovod_pinned.py", mpi(2, options), **{"learning-rate": 0.02}) as job:
        endings = all_well(job.wait(within=400))
        ranks = told(endings)
        assert places(ranks) == TWO_ON_EACH
        assert all_alike(ranks)
        assert (endings[0].ml / "model/1/saved_model.pb").exists()
        assert not list((endings[1].ml / "model").iterdir())


@pytest.mark.more  # as the next one, with a loop of one's own and twice as many ranks
def test_a_loop_for_sagemakers_data_parallel_library(foreign: StartForeign) -> None:
    distribution = {**DATA_PARALLEL, "sagemaker_distributed_dataparallel_custom_mpi_options": SHARED_CORES}
    with foreign("smddp_tape.py", distribution, sagemaker_entrypoint_processes_per_host=2) as job:
        endings = all_well(job.wait(within=400))
        assert "Horovod stands in for SageMaker's data-parallel library" in endings[0].log
        ranks = told(endings)
        assert places(ranks) == TWO_ON_EACH
        assert SHARED_CORES in endings[0].line("running mpirun")
        assert all_alike(ranks)
        assert len({each["loss"] for each in ranks}) == 1
        for each in ranks:
            assert each["average"] == [2.5, 15.0]
            assert each["of a list"] == [1.5, 1.0]
            assert each["sum"] == [10.0, 60.0]
            assert each["largest"] == [4.0, 30.0]
            assert each["of rank 1"] == [2.0, 10.0]
        assert (endings[0].ml / "model/1/saved_model.pb").exists()


def test_fit_with_that_librarys_optimizer_and_callbacks(foreign: StartForeign) -> None:
    with foreign("smddp_fit.py", DATA_PARALLEL) as job:
        ranks = told(all_well(job.wait(within=400)))
        assert places(ranks) == [("algo-1", 0, 2), ("algo-2", 0, 2)], "one rank on a host without GPUs"
        assert all_alike(ranks)
        assert len({each["loss"] for each in ranks}) == 1, "MetricAverageCallback"


NOT_COVERED = """
import smdistributed.dataparallel.tensorflow as sdp, tensorflow as tf
def says(action):
    try:
        action()
    except Exception as error:
        print(type(error).__name__, error)
says(lambda: sdp.alltoall)
says(lambda: sdp.DistributedGradientTape(tf.GradientTape(), op=sdp.ReduceOp.SUM))
says(lambda: sdp.DistributedOptimizer(tf.optimizers.SGD(), device_dense="/cpu:0"))
print(hasattr(sdp, "keras"), hasattr(sdp, "nothing"))
from smdistributed.dataparallel.tensorflow import keras
says(lambda: keras.load_model)
"""


def test_what_that_library_does_not_cover_says_so(image: str) -> None:
    where = "import entrypoint.launcher.plan.distributions.common as common; print(common.STAND_INS)"
    folder = run_alone(image, "python", "-c", where).stdout.strip()
    environment = {"PYTHONPATH": folder, "TF_CPP_MIN_LOG_LEVEL": "3"}
    result = run_alone(image, "python", "-c", NOT_COVERED, environment=environment)
    lines = [line for line in result.stdout.splitlines() if line.startswith(("AttributeE", "NotImpl", "Tr", "Fa"))]
    assert [line.partition(" ")[0] for line in lines] == [
        "AttributeError",
        "NotImplementedError",
        "NotImplementedError",
        "False",
        "AttributeError",
    ], result.stdout
    assert "smdistributed.dataparallel.tensorflow.alltoall is not covered" in lines[0]
    assert "DistributedGradientTape, " in lines[0] and "horovod.tensorflow itself" in lines[0]
    assert "wanted ReduceOp.AVERAGE" in lines[1] and "horovod.tensorflow.DistributedGradientTape" in lines[1]
    assert "device_dense='/cpu:0'" in lines[2]
    assert lines[3] == "False False"
    assert "smdistributed.dataparallel.tensorflow.keras.load_model is not covered" in lines[4]


def test_the_image_has_no_such_library_but_for_jobs_that_ask(image: str) -> None:
    result = run_alone(image, "python", "-c", "import smdistributed")
    assert "ModuleNotFoundError: No module named 'smdistributed'" in result.stdout
