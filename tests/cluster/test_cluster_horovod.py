"""Test Horovod on the image of TEST_LINE, in jobs of two hosts with a rank on each: `fit`, and Horovod's own tests.

Its own tests are not in its packages: HOROVOD_SOURCES names a checkout of Horovod 0.28.1,

    git clone --depth 1 --branch v0.28.1 https://github.com/horovod/horovod.git

Those for GPUs are left out. docs/horovod.md has what came of it.
"""

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from containers import BUSY, Cluster, Ending, download

from images import LINE

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
KERASES: dict[str, dict[str, str]] = {"keras2": {}} if LINE == "2.14" else {"keras2": LEGACY, "keras3": {}}
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
    """Return what each rank has written."""
    return [json.loads((each.ml / f"output/data/{rank}.json").read_text()) for rank, each in enumerate(endings)]


@pytest.mark.parametrize("keras", KERASES)
def test_fit(cluster: Callable[..., Cluster], keras: str) -> None:
    """Ranks that start apart, each with its rows, end with the same weights; what they save is used to resume."""
    with cluster(program="horovod_keras.py", hosts=2, mode="mpi", environment={**BUSY, **KERASES[keras]}) as job:
        endings = job.wait(within=400).values()
        assert [ending.exit_code for ending in endings] == [0, 0]
        ranks = told(endings)
    assert ranks[0] == ranks[1]
    steps = 3 * 4  # epochs, batches
    assert ranks[0]["keras"][0] == keras[-1]
    assert ranks[0]["weights"] and ranks[0]["metrics"] and ranks[0]["normal"]
    assert ranks[0]["rate"] == pytest.approx(0.2)
    assert ranks[0]["plain"] == ["keras" if LINE == "2.14" or keras == "keras3" else "tf_keras", steps]
    assert ranks[0]["again"] == [steps, steps + 4, True]
    if keras == "keras3":
        assert ranks[0]["half"], "a rank whose gradients are infinite holds up nobody, and spoils nothing"
        assert "gradient_accumulation_steps" in ranks[0]["refused"]


@pytest.mark.skipif(not SOURCES, reason="HOROVOD_SOURCES names no checkout of Horovod: see the file's first lines")
@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("keras", KERASES)
def test_horovods_own(
    cluster: Callable[..., Cluster],
    wheels: Path,
    keras: str,
    file: str,
) -> None:
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
        endings = job.wait(within=1500).values()
        assert [ending.exit_code for ending in endings] == [0, 0]
        ranks = told(endings)
        assert ranks[0] and list(ranks[0]) == list(ranks[1])
        count = {outcome: sum(each == outcome for each, _ in ranks[0].values()) for outcome in ("passed", "skipped")}
        failed = {name: why for rank in ranks for name, (outcome, why) in rank.items() if outcome == "failed"}
        print(f"{file}, {keras}, {LINE}: {count['passed']} passed, {count['skipped']} skipped, {len(failed)} failed")
        known = [name for names in FAILS.get((keras, file), {}).values() for name in names]
        assert sorted(failed) == sorted(known), "\n\n".join(f"{name}:\n{why}" for name, why in failed.items())
