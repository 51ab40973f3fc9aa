"""Every cell of the matrix, on the image that TEST_IMAGE names: two hosts, a model of three weights."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from containers import BUSY, Cluster, sh
from matrix import ENVIRONMENT, LINES, NEVER, WAYS

ALL = [(line, way, name) for line, interfaces in LINES.items() for way in WAYS for name in interfaces]
CELLS = [cell for cell in ALL if cell not in NEVER or NEVER[cell].text]


@pytest.fixture(scope="session")
def tensorflow(image: str) -> str:
    """Which line the image is of."""
    command = "from importlib.metadata import version; print(version('tensorflow-cpu'))"
    found = sh("docker", "run", "--rm", "--network", "none", image, "python", "-c", command, within=120).stdout
    return ".".join(found.strip().splitlines()[-1].split(".")[:2])


@pytest.mark.more  # of the line that the image is of
@pytest.mark.parametrize("line, way, name", CELLS, ids=["-".join(cell) for cell in CELLS])
def test_a_cell(
    image: str, tensorflow: str, cluster: Callable[..., Cluster], tmp_path: Path, line: str, way: str, name: str
) -> None:
    if line != tensorflow:
        pytest.skip(f"the image is of TensorFlow {tensorflow}")
    interface, never = LINES[line][name], NEVER.get((line, way, name))
    environment = {**BUSY, **ENVIRONMENT[way], **dict(interface.environment)}
    hyperparameters = {"api": interface.api, "way": way, "sagemaker_mpi_num_of_processes_per_host": 1}
    hosts = 1 if way == "single" else 2
    (tmp_path / "shared").mkdir()  # an Estimator's parameter servers write each their part of a checkpoint
    with cluster(
        program="cell.py",
        shared=tmp_path / "shared",
        hosts=hosts,
        environment=environment,
        hyperparameters=hyperparameters,
    ) as job:
        endings = job.wait(within=400).values()
        codes = [ending.exit_code for ending in endings]
        if never:
            assert 0 not in codes
            assert any(never.text in (ending.failure or "") + ending.log for ending in endings)
            return
        assert codes == [0] * hosts
        told = [
            json.loads(file.read_text()) for ending in endings for file in (ending.ml / "output/data").glob("*.json")
        ]
        everywhere = {"mwms", "horovod", "mpi4py"} if interface.api != "estimator" else {"horovod"}
        assert len(told) == (hosts if way in everywhere else 1)
        assert all(each["keras"].startswith(interface.keras) and each["tasks"] == hosts for each in told)
        assert all(each["weights"] == pytest.approx([1, 2, 3], abs=0.1) for each in told)
        assert len({tuple(each["weights"]) for each in told}) == 1
