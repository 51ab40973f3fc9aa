"""Test every cell of the matrix of one line (TEST_LINE, 2.14 by default): two hosts, three weights.

They run on our image, and on a stand-in for AWS's with our entrypoint (TEST_AWS_IMAGE, else made by make_aws.sh).
"""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from containers import BUSY, DOCKER_RUN, Cluster, download, sh
from matrix import ENVIRONMENT, JAX_LINE, LINES, NEVER, NO_HOROVOD, ON, ON_JAX, WAYS

from images import BUILD, GPU, LINE, ROOT, Images, one_at_a_time

JAX_CELL = ROOT / "tests/programs/jax_cell.py"
# A stand-in has no GPUs either.
WHERE = (LINE,) if GPU else (LINE, LINE + ON)
ALL = [(where, way, name) for where in WHERE for way in WAYS for name in LINES[LINE]]
CELLS = [cell for cell in ALL if cell not in NEVER or NEVER[cell].text]


@pytest.fixture(scope="session")
def of_line(image: str) -> None:
    """Check that the image belongs to the tested line, whose cells the page shows."""
    command = """if True:
        from importlib.metadata import distributions
        names = ("tensorflow", "tensorflow-cpu", "tensorflow_cpu")
        print(*(each.version for each in distributions() if each.name in names))
    """
    found = sh(*DOCKER_RUN, "--network", "none", image, "python", "-c", command, within=120).stdout
    tensorflow = found.strip().splitlines()[-1]
    assert tensorflow.startswith(f"{LINE}."), f"TEST_LINE is {LINE}, and {image} has TensorFlow {tensorflow}"


@pytest.fixture(scope="session")
def aws(image: str) -> str:
    if given := os.environ.get("TEST_AWS_IMAGE"):
        return given
    if os.geteuid() != 0 or not shutil.which("debootstrap"):
        pytest.skip("needs TEST_AWS_IMAGE; or root and debootstrap, to make a stand-in for AWS's image")
    with one_at_a_time():
        return sh(str(Path(__file__).with_name("make_aws.sh")), LINE, within=BUILD).stdout.splitlines()[-1]


@pytest.fixture(scope="session")
def onto_aws(aws: str) -> Iterator[str]:
    with Images() as images:
        yield images.on(aws)[0]


@pytest.mark.more
@pytest.mark.timeout(2 * BUILD)  # the first waits for a stand-in
@pytest.mark.parametrize("where, way, name", CELLS, ids=["-".join(cell).replace(ON, "-on") for cell in CELLS])
def test_cell_of_the_matrix_trains_or_logs_the_reason(
    request: pytest.FixtureRequest, tmp_path: Path, where: str, way: str, name: str
) -> None:
    interface, never = LINES[LINE][name], NEVER.get((where, way, name))
    if where == LINE:
        request.getfixturevalue("of_line")
    image = request.getfixturevalue("image" if where == LINE else "onto_aws")
    hosts = 1 if way == "single" else 2
    with Cluster(
        image,
        tmp_path,
        program="cell.py",
        shared=tmp_path / "shared",  # an Estimator's parameter servers write each their part of a checkpoint
        hosts=hosts,
        environment={**BUSY, **ENVIRONMENT[way], **dict(interface.environment)},
        hyperparameters={"api": interface.api, "way": way, "sagemaker_mpi_num_of_processes_per_host": 1},
    ) as job:
        if never:
            endings = job.wait(within=400).values()
            assert 0 not in [ending.exit_code for ending in endings]
            assert any(never.text in (ending.failure or "") + ending.log for ending in endings)
            if never is not NO_HOROVOD:  # which its first line says
                told_first = (re.search(r"warning: cell\.py:\d+ calls fit", ending.log) for ending in endings)
                assert any(told_first), "it is told before it trains"
            return
        told = [facts for ending in job.all_end(within=400) for facts in ending.told.values()]
        everywhere = {"mwms", "horovod", "mpi4py"} if interface.api != "estimator" else {"horovod"}
        assert len(told) == (hosts if way in everywhere else 1)
        assert all(each["keras"].startswith(interface.keras) and each["tasks"] == hosts for each in told)
        assert all(each["weights"] == pytest.approx([1, 2, 3], abs=0.1) for each in told)
        assert len({tuple(each["weights"]) for each in told}) == 1


@pytest.mark.more
@pytest.mark.skipif(LINE != JAX_LINE, reason="the image of another line has no jax")
@pytest.mark.usefixtures("of_line")
@pytest.mark.parametrize("api", ON_JAX)
def test_jax_library_trains_on_two_hosts(image: str, tmp_path: Path, api: str) -> None:
    options: dict[str, Any] = {"environment": {**BUSY, "ENTRYPOINT_MODE": "jax"}, "hyperparameters": {"api": api}}
    if needed := ON_JAX[api][1]:
        # The pins of the image: what it has stays as it is.
        download(tmp_path / "wheels", "-c", str(ROOT / f"container/lines/{LINE}/requirements.txt"), needed)
        options["files"] = {"requirements.txt": f"--no-index\n--find-links /wheels\n{needed}\n"}
        options["mounts"] = [f"{tmp_path / 'wheels'}:/wheels:ro"]
    with Cluster(image, tmp_path, program="jax_cell.py", code=JAX_CELL, hosts=2, **options) as job:
        told = [facts for ending in job.all_end(within=400) for facts in ending.told.values()]
        assert sorted(each["index"] for each in told) == [0, 1]
        assert all((each["tasks"], each["weights"]) == (2, [1.0, 2.0, 3.0]) for each in told)
