"""Provide the image under test and jobs on it; check that no container or network is left."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from containers import Cluster, leftovers, sh

from images import ARM64, GPU

collect_ignore = [
    file for wanted, file in ((GPU, "test_cluster_gpu_image.py"), (ARM64, "test_cluster_arm64.py")) if not wanted
]

ROOT = Path(__file__).resolve().parents[2]

StartCluster = Callable[..., Cluster]
BUILD = 3000.0  # seconds: when to give up


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Raise the time limit of the first test that uses the image by the time of the build."""
    if not os.environ.get("TEST_IMAGE"):
        for item in items:
            if Path(__file__).parent in item.path.parents:
                item.add_marker(pytest.mark.timeout(BUILD + 900))


@pytest.fixture(scope="session")
def image() -> Iterator[str]:
    """Return the tag under test: the environment variable TEST_IMAGE, else an image that is built now.

    On a user's machine without Docker, tests that need it are skipped; with CI=true they fail.
    """
    try:
        answer = subprocess.run(["docker", "version"], capture_output=True, text=True, timeout=60)
        problem = answer.stderr.strip() if answer.returncode else ""
    except FileNotFoundError:
        problem = "there is no docker command"
    if problem:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(f"no Docker: {problem}")
    if not os.environ.get("TEST_IMAGE"):
        sh(str(ROOT / "build.sh"), within=BUILD)
    yield os.environ.get("TEST_IMAGE") or "sagemaker-tf-entrypoint:latest"
    assert leftovers() == ""


@pytest.fixture
def cluster(image: str, tmp_path: Path) -> StartCluster:
    """Return the context manager of a job: `with cluster(program=..., ...) as job:`, see containers.Cluster."""

    def start(**options: object) -> Cluster:
        return Cluster(image, tmp_path, **options)

    return start


@pytest.fixture(scope="session")
def clicks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a channel for DeepFM: four files of 2,000 rows.

    A model that learns nothing has an AUC of 0.5 on the last file.
    """
    channel = tmp_path_factory.mktemp("clicks")
    program = ROOT / "examples/deepfm/make_rows.py"
    subprocess.run([sys.executable, program, "--rows", "8000", "--output", channel], check=True, timeout=300)
    return channel
