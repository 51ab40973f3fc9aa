"""Test scripts for AWS's images in containers, with the hyperparameters that SageMaker's SDK sends."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from containers import BUSY, Cluster, Ending, run_alone
from sent import DATA_PARALLEL, PARAMETER_SERVER, by_sdk

FOREIGN = Path(__file__).resolve().parents[1] / "programs/foreign"
StartForeign = Callable[..., Cluster]
# More ranks than cores: the ones that wait leave their core to others.
SHARED_CORES = "--mca mpi_yield_when_idle 1"


@pytest.fixture
def foreign(cluster: Callable[..., Cluster]) -> StartForeign:
    """Return `with foreign(script, distribution, **hyperparameters) as job:` on two hosts."""

    def start(script: str, distribution: dict[str, Any], shared: Path | None = None, **users: object) -> Cluster:
        hyperparameters = by_sdk("train.py", distribution, **users)
        return cluster(code=FOREIGN / script, hosts=2, shared=shared, hyperparameters=hyperparameters, environment=BUSY)

    return start


# local/test_foreign_local.py and local/test_ps_ends.py have workers that serve until the chief has ended.
@pytest.mark.more  # the matrix has tf.estimator in each mode
def test_an_estimator_trains_evaluates_exports_and_ends(foreign: StartForeign, tmp_path: Path) -> None:
    shared = tmp_path / "efs"
    with foreign("estimator.py", PARAMETER_SERVER, shared, model_dir="/opt/ml/checkpoints") as job:
        master, worker = job.all_end(within=400)
        assert "task master 0, filters /job:ps /job:master" in master.log
        assert "task worker 0, filters /job:ps /job:worker/task:0" in worker.log
        assert all("train_and_evaluate has ended" in host.log for host in (master, worker))
        assert list((shared / "export/last").glob("*/saved_model.pb")), "the master has not evaluated"
        assert list((master.ml / "model").glob("*/saved_model.pb"))
        assert not list((worker.ml / "model").iterdir())


def ranks_of(endings: list[Ending]) -> list[dict[str, Any]]:
    """Return what the ranks wrote; check that they began with different weights and ended with equal ones."""
    ranks = [facts for ending in endings for facts in ending.told.values()]
    assert len({tuple(each["weights"]) for each in ranks}) == 1
    assert len({each["loss"] for each in ranks}) == 1
    return ranks


@pytest.mark.more  # as the next one, with a loop of one's own and twice as many ranks
def test_data_parallel_loop_averages_gradients_by_horovod(foreign: StartForeign) -> None:
    distribution = {**DATA_PARALLEL, "sagemaker_distributed_dataparallel_custom_mpi_options": SHARED_CORES}
    with foreign("smddp_tape.py", distribution, sagemaker_entrypoint_processes_per_host=2) as job:
        endings = job.all_end(within=400)
        assert "Horovod stands in for SageMaker's data-parallel library" in endings[0].log
        assert SHARED_CORES in endings[0].line("running mpirun")
        assert [len(ending.told) for ending in endings] == [2, 2]
        for rank, each in enumerate(ranks_of(endings)):
            assert (each["rank"], each["local_rank"], each["size"]) == (rank, rank % 2, 4)
            assert each["average"] == [2.5, 15.0]
            assert each["of a list"] == [1.5, 1.0]
            assert each["sum"] == [10.0, 60.0]
            assert each["largest"] == [4.0, 30.0]
            assert each["of rank 1"] == [2.0, 10.0]
        assert (endings[0].ml / "model/1/saved_model.pb").exists()


def test_data_parallel_fit_ends_with_equal_weights_on_all_ranks(foreign: StartForeign) -> None:
    with foreign("smddp_fit.py", DATA_PARALLEL) as job:
        endings = job.all_end(within=400)
        assert [len(ending.told) for ending in endings] == [1, 1], "one rank on a host without GPUs"
        assert [each["size"] for each in ranks_of(endings)] == [2, 2]


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


def test_unsupported_calls_of_the_data_parallel_library_are_reported(image: str) -> None:
    where = "import entrypoint.launcher.plan.distributions.common as common; print(common.STAND_INS)"
    folder = run_alone(image, "python", "-c", where).stdout.strip()
    environment = {"PYTHONPATH": folder, "TF_CPP_MIN_LOG_LEVEL": "3"}
    result = run_alone(image, "python", "-c", NOT_COVERED, environment=environment)
    lines = [line for line in result.stdout.splitlines() if line.startswith(("AttributeE", "NotImpl", "Tr", "Fa"))]
    kinds = ["AttributeError", "NotImplementedError", "NotImplementedError", "False", "AttributeError"]
    assert [line.partition(" ")[0] for line in lines] == kinds, result.stdout
    assert "smdistributed.dataparallel.tensorflow.alltoall is not covered" in lines[0]
    assert "DistributedGradientTape, " in lines[0] and "horovod.tensorflow itself" in lines[0]
    assert "wanted ReduceOp.AVERAGE" in lines[1] and "horovod.tensorflow.DistributedGradientTape" in lines[1]
    assert "device_dense='/cpu:0'" in lines[2]
    assert lines[3] == "False False"
    assert "smdistributed.dataparallel.tensorflow.keras.load_model is not covered" in lines[4]
