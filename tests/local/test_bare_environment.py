"""Test a Python that has only the wheel's own requirements, psutil and waitress. Errors name the missing extras."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import json, os
task = json.loads(os.environ.get("TF_CONFIG", '{"task": {}}'))["task"]
print("trained", os.environ["SM_CURRENT_HOST"], task.get("type"))
"""


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the Python of an environment that has only these packages."""
    folder = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=120)
    (packages,) = folder.glob("lib/python3*/site-packages")
    for name in ("psutil", "waitress"):
        (packages / name).symlink_to(Path(str(importlib.import_module(name).__file__)).parent)
    for name in ("entrypoint", "sagemaker_tf_data"):
        (packages / name).symlink_to(ROOT / name)
    return folder / "bin/python"


def run(bare: Path, *words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COVERAGE"))}
    return subprocess.run(
        [bare, "-m", "entrypoint", *words], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120,
    )  # fmt: skip


@pytest.mark.parametrize(("mode", "role"), [("single", "None"), ("mwms", "worker")])
def test_train_starts_hosts(bare: Path, tmp_path: Path, mode: str, role: str) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    done = run(bare, "local", "train.py", "--hosts", "2", "--mode", mode, folder=tmp_path)
    assert done.returncode == 0, done.stdout
    assert all(f"trained algo-{number} {role}" in done.stdout for number in (1, 2)), done.stdout


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (("report", "s3://bucket/output.tar.gz"), "aws"),
        (("top", "http://localhost:1"), "tools"),
    ],
)
def test_command_without_its_packages_names_the_extra(
    bare: Path, tmp_path: Path, words: tuple[str, ...], extra: str
) -> None:
    done = run(bare, *words, folder=tmp_path)
    assert done.returncode == 78 and f"pip install 'sagemaker-tf-entrypoint[{extra}]'" in done.stdout, done.stdout


def test_serve_without_its_packages_names_the_extra(bare: Path, tmp_path: Path) -> None:
    done = subprocess.run([bare, "-m", "entrypoint.serving"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 78 and "'sagemaker-tf-entrypoint[serving]'" in done.stdout, done.stdout
