"""Test the projects of `entrypoint new` in the image: they learn, continue from a checkpoint, and save one model."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from compose import ROOT, generations
from containers import PATIENCE, sh

from entrypoint.cli import main
from images import DEFAULT_LINE, LINE

needs_jax = pytest.mark.skipif(LINE == DEFAULT_LINE, reason="the image of the default line has no jax")
JOBS = {
    "single": ["--hosts", "1"],
    "ps": ["--hosts", "2", "--env", "ENTRYPOINT_PS_WORKERS=server"],
    "mwms": ["--hosts", "2"],
    "mpi": ["--hosts", "2"],
    "jax": ["--hosts", "2"],
}


def project(folder: Path, mode: str) -> Path:
    assert main.run(["new", str(folder / "project"), "--mode", mode], {}) == 0
    return folder / "project"


def call(folder: Path, *words: object, image: str, **variables: str) -> str:
    """Run a module of this Python in a project; return what it prints. AssertionError unless it ends with 0."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "IMAGE": image, **variables}
    command = [sys.executable, "-m", *(str(word) for word in words)]
    done = subprocess.run(
        command, cwd=folder, env=environment, text=True, errors="replace", timeout=PATIENCE,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    print(done.stdout)
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.parametrize("mode", ["single", pytest.param("mpi", marks=pytest.mark.more)])
def test_its_own_test_passes(image: str, tmp_path: Path, mode: str) -> None:
    """Of mode mpi in containers, as Horovod is not installed beside the tests."""
    words = ("pytest", "-p", "no:cacheprovider", "-q", f"--basetemp={tmp_path / 'tests'}")
    assert "1 passed" in call(project(tmp_path, mode), *words, image=image)
    assert (tmp_path / "tests/test_it_learns0/out/algo-1/ml/output/success").exists()


@pytest.mark.more  # the first one runs a job in containers, and unit/test_new.py reads all of them
@pytest.mark.parametrize("mode", [pytest.param("jax", marks=needs_jax), *(mode for mode in JOBS if mode != "jax")])
def test_the_next_job_goes_on(image: str, tmp_path: Path, mode: str) -> None:
    folder, kept = project(tmp_path, mode), tmp_path / "kept"
    kept.mkdir()
    common = [
        "entrypoint",
        "local",
        "src/train.py",
        "--mode",
        mode,
        *JOBS[mode],
        "--engine",
        "docker",
        "--image",
        image,
    ]
    steps = []
    for epochs in (2, 5):
        output = tmp_path / f"out-{epochs}"
        more = ["--checkpoints", kept, "--output", output, "--hyperparameters", f"epochs={epochs}"]
        log = call(folder, *common, *more, image=image)
        found = re.findall(r"\[algo-1 [^]]+\] step=(\d+) loss=(\S+)", log)
        steps.append([int(step) for step, _ in found])
        saved = [path.relative_to(output).parts[0] for path in output.glob("algo-*/ml/model/1/saved_model.pb")]
        assert saved == ["algo-1"]
    assert steps == [[32, 64], [96, 128, 160]]
    assert float(found[-1][1]) < 0.02


@pytest.fixture
def composed(tmp_path: Path) -> Iterator[Path]:
    folder = project(tmp_path, "mwms")
    yield folder
    compose = next(iter(generations().values()))
    sh(*compose.command, "down", "--timeout", "0", env=compose.variables(), cwd=folder, within=PATIENCE)


@pytest.mark.more  # test_cluster_compose.py has the repository's own file
@pytest.mark.parametrize("generation", ["v2", "1.29"])
def test_its_compose_file(image: str, composed: Path, generation: str) -> None:
    if generation not in generations():
        missing = f"no docker compose {generation} (tests/run.sh gets it)"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(missing)
    compose = generations()[generation]
    job = subprocess.run(
        [*compose.command, "up", "--exit-code-from", "algo-1"], cwd=composed, text=True, errors="replace",
        env=compose.variables({"IMAGE": image, "HYPERPARAMETERS": "epochs=1"}), timeout=PATIENCE,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert job.returncode == 0, job.stdout
    assert re.search(r"\[algo-1 worker/0\] step=32 loss=0\.\d+", job.stdout)
    assert (composed / "out/compose/algo-1/ml/model/1/saved_model.pb").exists()
