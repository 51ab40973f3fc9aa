"""Provide the image and the SDKs under test, and data for the examples."""

import os
from collections.abc import Callable
from pathlib import Path

import local_mode
import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Raise the time limit, since a test starts several jobs and waits up to local_mode.PATIENCE for each."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(4 * local_mode.PATIENCE))


@pytest.fixture(scope="session")
def image() -> str:
    """Return the tag under test: the environment variable TEST_IMAGE, else what ./build.sh has built."""
    name = os.environ.get("TEST_IMAGE") or "sagemaker-tf-entrypoint:latest"
    try:
        local_mode.docker("image", "inspect", name)
    except (FileNotFoundError, AssertionError) as problem:
        local_mode.missing(f"no image (./build.sh makes it): {problem}")
    return name


@pytest.fixture(scope="session")
def sdks(image: str) -> None:
    """Check that the environments of both SDKs exist."""
    for sdk in ("v2", "v3"):
        local_mode.needed_python(sdk)


@pytest.fixture
def run(sdks: None, tmp_path: Path) -> Callable[..., local_mode.Job]:
    """Return `run("v2", call)`, see local_mode.run."""
    return lambda sdk, call, driver="": local_mode.run(sdk, tmp_path, call, driver)
