"""Every cell of the matrix of one line (TEST_LINE, 2.14 by default), on an image of it: two hosts, three weights."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from containers import BUSY, DOCKER_RUN, Cluster, sh
from matrix import ENVIRONMENT, LINES, NEVER, WAYS

from images import LINE

ALL = [(way, name) for way in WAYS for name in LINES[LINE]]
CELLS = [(way, name) for way, name in ALL if (LINE, way, name) not in NEVER or NEVER[LINE, way, name].text]


@pytest.fixture(scope="session")
def of_line(image: str) -> None:
    """What ran on an image of another line would say nothing of the page's cells."""
    command = """if True:
        from importlib.metadata import distributions
        names = ("tensorflow", "tensorflow-cpu", "tensorflow_cpu")
        print(*(each.version for each in distributions() if each.name in names))
    """
    found = sh(*DOCKER_RUN, "--network", "none", image, "python", "-c", command, within=120).stdout
    tensorflow = found.strip().splitlines()[-1]
    assert tensorflow.startswith(f"{LINE}."), f"TEST_LINE is {LINE}, and {image} has TensorFlow {tensorflow}"


@pytest.mark.more
@pytest.mark.usefixtures("of_line")
@pytest.mark.parametrize("way, name", CELLS, ids=["-".join((LINE, *cell)) for cell in CELLS])
def test_a_cell(cluster: Callable[..., Cluster], tmp_path: Path, way: str, name: str) -> None:
    interface, never = LINES[LINE][name], NEVER.get((LINE, way, name))
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
            assert any("warning: cell.py " in ending.log for ending in endings), "it is told before it trains"
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
