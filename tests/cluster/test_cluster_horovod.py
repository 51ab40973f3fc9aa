"""Test Horovod on the image of TEST_LINE, on two hosts with a rank on each: `fit`, uneven shards, and its own tests.

Its own tests are not in its packages: HOROVOD_SOURCES names a checkout of Horovod 0.28.1,

    git clone --depth 1 --branch v0.28.1 https://github.com/horovod/horovod.git

Tests for GPUs are left out. docs/horovod.md has the results.
"""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from containers import BUSY, Cluster, Ending, download
from epochs import tfrecords

from entrypoint.launcher.job.channels import Distribution
from entrypoint.simulate.local_channels import LocalChannel
from images import DEFAULT_LINE, LINE

StartCluster = Callable[..., Cluster]
SOURCES = os.environ.get("HOROVOD_SOURCES", "")
pytestmark = [pytest.mark.more, pytest.mark.timeout(1800)]
NEEDED = ("pytest", "parameterized", "mock")  # by its tests; images have none of them
FILES = (
    "test_common.py",
    "test_tensorflow.py",
    "test_tensorflow_process_sets.py",
    "test_tensorflow2_keras.py",
    "test_tensorflow2_keras_process_sets.py",
)
LEGACY = {"TF_USE_LEGACY_KERAS": "1"}
KERASES: dict[str, dict[str, str]] = {"keras2": {}} if LINE == DEFAULT_LINE else {"keras2": LEGACY, "keras3": {}}
# Which of their tests fail, with which Keras, and why.
FAILS: dict[tuple[str, str], dict[str, list[str]]] = {
    ("keras3", "test_tensorflow2_keras.py"): {
        "the test is written for Keras 2: lr=, optimizers.legacy, losses.mean_squared_error, an optimizer of its own": [
            "test_gradient_aggregation_0",
            "test_gradient_aggregation_1",
            "test_gradient_aggregation_with_local_vars_0",
            "test_gradient_aggregation_with_local_vars_1",
            "test_legacy_optimizer",
            "test_sparse_as_dense",
            "test_sparse_as_dense_with_grad_aggregation",
            "test_train_model_lr_schedule",
        ],
        "backward_passes_per_step is refused": ["test_grad_aggregation_with_inf_grad"],
        "Keras 3's optimizers compute no gradients": ["test_partial_distributed_optimizer"],
        "local_variables have to be TensorFlow's own": ["test_broadcast_global_variables_callback_with_local_vars"],
        "elastic is not patched": ["test_elastic_state"],
    },
    ("keras3", "test_tensorflow2_keras_process_sets.py"): {
        "the test is written for Keras 2: an optimizer of its own": ["test_process_set_optimizer"],
    },
}


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide wheels to the hosts, which have no index."""
    return download(tmp_path_factory.mktemp("wheels"), *NEEDED)


def told(endings: Iterable[Ending]) -> list[Any]:
    """Return the JSON value that each rank wrote."""
    return [ending.told[f"rank-{rank}"] for rank, ending in enumerate(endings)]


@pytest.mark.parametrize("keras", KERASES)
def test_fit_ends_with_equal_weights_on_all_ranks(cluster: StartCluster, keras: str) -> None:
    """Ranks start with different weights and rows, and end with equal weights. The next job resumes from these."""
    with cluster(program="horovod_keras.py", hosts=2, mode="mpi", environment={**BUSY, **KERASES[keras]}) as job:
        ranks = told(job.all_end(within=400))
    assert ranks[0] == ranks[1]
    steps = 3 * 4  # epochs, batches
    assert ranks[0]["keras"][0] == keras[-1]
    assert ranks[0]["weights"] and ranks[0]["metrics"] and ranks[0]["normal"]
    assert ranks[0]["rate"] == pytest.approx(0.2)
    assert ranks[0]["plain"] == ["keras" if LINE == DEFAULT_LINE or keras == "keras3" else "tf_keras", steps]
    assert ranks[0]["again"] == [steps, steps + 4, True]
    if keras == "keras3":
        assert ranks[0]["half"], "a rank whose gradients are infinite holds up nobody, and spoils nothing"
        assert "gradient_accumulation_steps" in ranks[0]["refused"]


of_default_line = pytest.mark.skipif(LINE != DEFAULT_LINE, reason="the programs are written for the default line")


@of_default_line
def test_tf1_code_trains_through_the_shim(cluster: StartCluster) -> None:
    """All ranks get the variables of rank 0, and gradients are averaged: 100 steps end between the ranks' own rows."""
    shim = {"ENTRYPOINT_TF1": "shim", "TF_CPP_MIN_LOG_LEVEL": "2", **BUSY}
    with cluster(program="horovod_tf1.py", mode="mpi", hosts=2, environment=shim) as job:
        for rank, ending in enumerate(job.all_end()):
            assert "begins at 1.0" in ending.log
            assert f"rank {rank} of 2 has ended at 2.250" in ending.log
            assert "before 3, after 2" in ending.log


@of_default_line
def test_ranks_with_uneven_shards_end_together(cluster: StartCluster, tmp_path: Path) -> None:
    """unit/library tests the counting of steps. This is Horovod's part, and the case without it."""
    source = tmp_path / "data"
    for name, records in {"a": 21, "b": 19, "c": 10}.items():  # algo-1 gets a and c, algo-2 gets b
        tfrecords(source / name, [records], start=1)
    channel = LocalChannel(name="train", source=source, distribution=Distribution.SHARDED)
    stall = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "2", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "12"}
    environment = {**BUSY, **stall, "TF_CPP_MIN_LOG_LEVEL": "2"}
    with cluster(program="uneven.py", mode="mpi", hosts=2, channels={"train": channel}, environment=environment) as job:
        endings = job.all_end(within=400)
        ranks = told(endings)
        assert [each.pop("batches") for each in ranks] == [8, 5]
        expected = {"even_steps": 5, "taken": 5, "together": [5, 5, 5], "counted": 5, "fit": 10, "alone": "stalled"}
        assert ranks == [expected, expected]
        assert "5 to 8: rank 0: 8 (31 records, 2 files); rank 1: 5 (19 records, 1 files)" in endings[0].log


@pytest.mark.skipif(not SOURCES, reason="HOROVOD_SOURCES names no checkout of Horovod: see the file's first lines")
@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("keras", KERASES)
def test_horovods_own_tests_pass(cluster: StartCluster, wheels: Path, keras: str, file: str) -> None:
    with cluster(
        program="horovod_tests.py",
        hosts=2,
        mode="mpi",
        hyperparameters={"file": file, "keras": keras[-1]},
        # Open MPI 4.1.4 adds 8 bits by AVX with saturation. A rank that fails alone leaves others waiting.
        environment={**BUSY, **KERASES[keras], "OMPI_MCA_op": "^avx", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "60"},
        files={"requirements.txt": "\n".join(["--no-index", "--find-links /wheels", *NEEDED])},
        mounts=[f"{Path(SOURCES).resolve()}:/horovod:ro", f"{wheels}:/wheels:ro"],
    ) as job:
        ranks = told(job.all_end(within=1500))
        assert ranks[0] and list(ranks[0]) == list(ranks[1])
        count = {outcome: sum(each == outcome for each, _ in ranks[0].values()) for outcome in ("passed", "skipped")}
        failed = {name: why for rank in ranks for name, (outcome, why) in rank.items() if outcome == "failed"}
        print(f"{file}, {keras}, {LINE}: {count['passed']} passed, {count['skipped']} skipped, {len(failed)} failed")
        known = [name for names in FAILS.get((keras, file), {}).values() for name in names]
        assert sorted(failed) == sorted(known), "\n\n".join(f"{name}:\n{why}" for name, why in failed.items())
