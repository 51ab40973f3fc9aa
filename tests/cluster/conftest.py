"""The image to test, the jobs on it, and the check that nothing of them is left on the machine."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from containers import Cluster, leftovers, sh

ROOT = Path(__file__).resolve().parents[2]
CRITEO = ROOT.parent / "shared/data"

StartCluster = Callable[..., Cluster]


@pytest.fixture(scope="session")
def image() -> Iterator[str]:
    """The tag under test: of the environment variable TEST_IMAGE, else built now.

    A user's machine without Docker skips what needs it; with CI=true that is a failure.
    """
    try:
        answer = subprocess.run(["docker", "version"], capture_output=True, text=True, timeout=60)
        problem = answer.stderr.strip() if answer.returncode else ""
    except FileNotFoundError:
        problem = "there is no docker command"
    if problem:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(f"no Docker: {problem}")
    if not os.environ.get("TEST_IMAGE"):
        sh(str(ROOT / "build.sh"), within=3000)
    yield os.environ.get("TEST_IMAGE") or "sagemaker-tf-entrypoint:latest"
    assert leftovers() == ""


@pytest.fixture
def cluster(image: str, tmp_path: Path) -> StartCluster:
    """`with cluster(program=..., ...) as job:`, see containers.Cluster."""

    def start(**options: object) -> Cluster:
        return Cluster(image, tmp_path, **options)

    return start


@pytest.fixture(scope="session")
def criteo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A channel with the four files of Criteo rows that lie beside the repository."""
    files = sorted(CRITEO.glob("criteo-sample-*.tfrecords"))
    if not files and os.environ.get("CI") != "true":
        pytest.skip(f"no rows of Criteo in {CRITEO}")
    assert len(files) == 4, f"{len(files)} files of Criteo rows in {CRITEO}; wanted 4"
    channel = tmp_path_factory.mktemp("criteo")
    for file in files:
        (channel / file.name).write_bytes(file.read_bytes())
    return channel
