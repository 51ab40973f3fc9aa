"""Test requirements on two hosts: pinned packages of the image keep their versions with any requirements.

The index is a folder that both hosts read, with packages of a few lines (tests/requirements_forms.py).
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from containers import Cluster, Ending, run_alone, sh, write_script
from package_index import Package, make
from requirements_forms import PACKAGES

StartCluster = Callable[..., Cluster]

CONFIG, CODE = 78, 65
PACKAGES_OF_IMAGE = "/opt/venv/lib/python3.11/site-packages"
LOADS_NOT = "raise ImportError('not the NumPy that TensorFlow is built with')\n"
ASKS = """
import importlib.metadata, subprocess, sys

print("told", "tensorflow", importlib.metadata.version("tensorflow"))
for words in (["pip", "check"], ["pip", "install", "fits-never"]):
    done = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True)
    print("told", *words, done.returncode, *done.stdout.split("\\n")[-2:])
for name in ("plain", "numpy>=99"):
    done = subprocess.run(["uv", "pip", "install", "--index-url", "file:///index/simple", name])
    print("told", "uv", name, done.returncode)
print("told", "fits-once", importlib.metadata.version("fits-once"))
"""


@pytest.fixture(scope="session")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the index, with a NumPy that breaks TensorFlow's import, and a TensorBoard that does not."""
    own = [each for each in PACKAGES if each.name != "numpy"]
    more = [Package("numpy", "99", module=LOADS_NOT), Package("tensorboard", "99")]
    return make(tmp_path_factory.mktemp("index"), [*own, *more], tools=("setuptools",))


@pytest.fixture
def start(cluster: StartCluster, index: Path) -> StartCluster:
    """Start a job of two hosts with this train.py, or train.sh, and requirements.txt."""

    def begin(requirements: str, script: str = "print('told it')\n", program: str = "train.py", **more: Any) -> Cluster:
        environment = {"PIP_INDEX_URL": "file:///index/simple", **more.pop("environment", {})}
        files = {"requirements.txt": requirements, **more.pop("files", {})}
        return cluster(
            program=program, code=script, files=files, hosts=2, mode="mwms", mounts=[f"{index}:/index:ro"],
            environment=environment, **more,
        )  # fmt: skip

    return begin


def told(ending: Ending) -> list[str]:
    """Return the lines that the script printed with `told`."""
    return [line.partition("] told ")[2] for line in ending.log.splitlines() if "] told " in line]


def cause(endings: list[Ending]) -> str:
    """Return the first line of the failure file."""
    return str(endings[0].failure).splitlines()[0]


def test_library_that_requires_tensorflow_leaves_tensorflow_unchanged(start: StartCluster) -> None:
    """The script and pip and uv within it find the same versions, and keep them."""
    with start("asks-tensorflow\nfits-once\n", ASKS) as job:
        for ending in job.all_end():
            assert "installed 2 packages by uv in " in ending.log
            tensorflow, check, never, plain, numpy, version = told(ending)
            assert tensorflow.startswith("tensorflow 2.")
            assert check.startswith("pip check 0 No broken requirements found.")
            assert never.startswith("pip install fits-never 1")
            assert (plain, numpy, version) == ("uv plain 0", "uv numpy>=99 1", "fits-once 1")


def test_unsatisfiable_requirements_end_all_hosts_with_one_cause(start: StartCluster) -> None:
    """No package is installed, not even that of the other line. requirements_forms.py has more cases."""
    with start("plain\nfits-once==2\n") as job:
        endings = job.all_end(CODE)
        first = cause(endings)
        assert "prepare (exit code 65): requirements.txt in /opt/ml/code cannot be installed: " in first
        for words in ("line 2 asks for fits-once==2", "numpy>=99", "write fits-once==1, which fits"):
            assert words in first
        for ending in endings:
            assert not told(ending)
            changed = sh("docker", "diff", job.container(ending.host)).stdout
            assert f"{PACKAGES_OF_IMAGE}/plain" not in changed and f"{PACKAGES_OF_IMAGE}/numpy" not in changed


@pytest.mark.more
def test_pip_in_a_shell_script_keeps_the_images_versions(start: StartCluster) -> None:
    script = """
pip install -r requirements.txt && echo "told pip $?"
pip install fits-never || echo "told pip $?"
uv pip install --index-url "$PIP_INDEX_URL" numpy==99 || echo "told uv $?"
python -c 'import importlib.metadata as found; print("told", found.version("fits-once"))'
"""
    with start("fits-once\n", script, "train.sh") as job:
        for ending in job.all_end():
            assert told(ending) == ["pip 0", "pip 1", "uv 1", "1"]


@pytest.mark.more
def test_package_replaced_on_request_is_checked_and_logged(start: StartCluster) -> None:
    with start("tensorboard==99\n", environment={"ENTRYPOINT_REPLACE": "tensorboard"}) as job:
        for ending in job.all_end():
            assert told(ending) == ["it"]
            assert "replaced in the image: tensorboard 2." in ending.line("replaced in the image: ")
            assert " -> 99" in ending.line("replaced in the image: ")
            assert "ENTRYPOINT_REPLACE: TensorFlow still loads" in ending.log


@pytest.mark.more
def test_replacement_that_breaks_tensorflow_ends_the_job(start: StartCluster) -> None:
    with start("numpy==99\n", environment={"ENTRYPOINT_REPLACE": "numpy"}) as job:
        endings = job.all_end(CODE)
        first = cause(endings)
        assert "ENTRYPOINT_REPLACE let it replace numpy " in first and "TensorFlow does not load: " in first
        assert "not the NumPy that TensorFlow is built with" in first
        assert not any(map(told, endings))


@pytest.mark.more
def test_package_with_different_versions_is_named_with_its_hosts(start: StartCluster) -> None:
    """The index changes between the installs, so hosts get different versions."""
    older = {"algo-2": {"PIP_CONSTRAINT": "/opt/ml/code/limits.txt"}}
    with start("plain\nother\n", host_environment=older, files={"limits.txt": "plain<2\n"}) as job:
        endings = job.all_end(CONFIG)
        assert cause(endings).startswith("algo-2 (differs from the other hosts): ")
        assert "installed by requirements is plain 1; on algo-1 it is plain 2" in cause(endings)
        assert not any(map(told, endings))


@pytest.mark.more
def test_warm_pool_keeps_wheels_that_uv_built(image: str, index: Path, tmp_path: Path) -> None:
    write_script(tmp_path / "ml", "print('told it')\n")
    (tmp_path / "ml/code/requirements.txt").write_text("legacy\n")
    mounts = {tmp_path / "ml": "/opt/ml", index: "/index:ro", tmp_path / "warm": "/warm"}
    environment = {"PIP_INDEX_URL": "file:///index/simple", "SAGEMAKER_MANAGED_WARMPOOL_CACHE_DIRECTORY": "/warm"}
    for built in (True, False):
        done = run_alone(image, "train", mounts=mounts, environment=environment, network="none")
        assert done.returncode == 0, done.stdout
        assert "installed 1 package by uv in " in done.stdout
        assert ("Built legacy==1" in done.stdout) is built
