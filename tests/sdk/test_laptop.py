"""Test the launcher on a laptop: a Python with SageMaker's SDK 3, and neither TensorFlow nor mpi4py."""

import shutil
import subprocess
import sys
from pathlib import Path

import local_mode
import pytest
from local_mode import ROOT

SCRIPT = """
import json, os
print(json.loads(os.environ["TF_CONFIG"])["task"])
"""


@pytest.fixture(scope="module")
def laptop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the launcher into an environment on top of the SDK's; return the folder of its commands."""
    folder = tmp_path_factory.mktemp("laptop")
    source = folder / "src"  # a copy: setuptools leaves a folder `build` where it builds
    for name in ("entrypoint", "sagemaker_tf_data"):
        shutil.copytree(ROOT / name, source / name)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    # Without pip, which takes longest to install; this Python's own installs into it.
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True, timeout=300)
    (packages,) = (folder / "venv/lib").glob("python3*/site-packages")
    (of_sdk,) = (local_mode.python_of("v3").parents[1] / "lib").glob("python3*/site-packages")
    (packages / "sdk.pth").write_text(f"{of_sdk}\n")
    pip = [sys.executable, "-m", "pip", "--python", folder / "venv/bin/python", "--disable-pip-version-check"]
    command = [*pip, "install", "-q", "--no-compile", source]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, timeout=600)
    return folder / "venv/bin"


def said(laptop: Path, *command: str, folder: Path, exit_code: int = 0) -> str:
    done = subprocess.run(
        [laptop / command[0], *command[1:]], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == exit_code, done.stdout
    return done.stdout


@pytest.mark.usefixtures("sdks")
def test_plan_doctor_and_local_run_beside_the_sdk(laptop: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    assert "worker/1" in said(laptop, "entrypoint", "plan", "--hosts", "2", "--mode", "mwms", folder=tmp_path)
    told = said(laptop, "entrypoint", "doctor", folder=tmp_path)
    assert "mode mwms: ready" in told and "lacks TensorFlow for its parameter servers" in told, told
    out = said(laptop, "entrypoint", "local", "train.py", "--hosts", "2", "--mode", "mwms", folder=tmp_path)
    assert "{'type': 'worker', 'index': 1}" in out, out
    refused = ("entrypoint", "local", "train.py", "--hosts", "2", "--mode", "ps")
    assert "lacks TensorFlow" in said(laptop, *refused, folder=tmp_path, exit_code=78)
    said(laptop, "python", "-c", "from sagemaker.train import ModelTrainer", folder=tmp_path)
