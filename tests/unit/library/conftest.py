"""Share fixtures that set a job's variables and channels for tests of datasets."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the variables of a job from the environment."""
    for name in list(os.environ):
        if name.startswith(("SM_", "ENTRYPOINT_", "TF_CONFIG", "SAGEMAKER_TF_DATA", "OMPI_COMM")):
            monkeypatch.delenv(name)


@pytest.fixture
def job_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Make a job with a Pipe channel of that name and a File channel `plain`; return the folder input/data."""

    def make(pipe: str) -> Path:
        monkeypatch.setenv("SAGEMAKER_BASE_DIR", str(tmp_path))
        (tmp_path / "input" / "config").mkdir(parents=True)
        (tmp_path / "input" / "data" / "plain").mkdir(parents=True)
        channels = {pipe: {"TrainingInputMode": "Pipe"}, "plain": {"TrainingInputMode": "File"}}
        (tmp_path / "input" / "config" / "inputdataconfig.json").write_text(json.dumps(channels))
        return tmp_path / "input" / "data"

    return make
