"""Provide the image for the zoo. Jobs are those of tests/cluster."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cluster"))
from containers import leftovers, sh


@pytest.fixture(scope="session")
def image() -> Iterator[str]:
    """Return the tag under test: TEST_IMAGE, else what ./build.sh has built."""
    name = os.environ.get("TEST_IMAGE") or "sagemaker-tf-entrypoint:latest"
    sh("docker", "image", "inspect", name)
    yield name
    assert leftovers() == ""
