"""Test the projects of `entrypoint new` in the image: they learn, resume from a checkpoint, and save one model."""

import os
import re
import sys
from pathlib import Path

import pytest
from containers import PATIENCE, sh
from variants import variants

from entrypoint.cli import main
from images import ROOT


def project(folder: Path, mode: str) -> Path:
    assert main.run(["new", str(folder / "project"), "--mode", mode], {}) == 0
    return folder / "project"


def call(folder: Path, *words: str, image: str) -> str:
    """Run a module of this Python in a project; return its output."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "IMAGE": image}
    return sh(sys.executable, "-m", *words, within=PATIENCE, cwd=folder, env=environment).stdout


@pytest.mark.parametrize("mode", variants({"single": "single", "mpi": "mpi"}, "single"))
def test_test_of_a_new_project_passes(image: str, tmp_path: Path, mode: str) -> None:
    """The test of mode mpi runs in containers, since Horovod is not installed beside the tests."""
    words = ("pytest", "-p", "no:cacheprovider", "-q", f"--basetemp={tmp_path / 'tests'}")
    assert "1 passed" in call(project(tmp_path, mode), *words, image=image)
    assert (tmp_path / "tests/test_it_learns0/out/algo-1/ml/output/success").exists()


@pytest.mark.more  # the one above runs a job in containers, and unit/test_new.py reads all projects
@pytest.mark.parametrize("mode", ["ps", "mwms", "mpi"])
def test_next_job_of_a_new_project_resumes(image: str, tmp_path: Path, mode: str) -> None:
    folder, kept, steps = project(tmp_path, mode), tmp_path / "kept", []
    kept.mkdir()
    command = ["entrypoint", "local", "src/train.py", "--mode", mode, "--hosts", "2", "--engine", "docker"]
    command += ["--env", "ENTRYPOINT_PS_WORKERS=server", "--image", image, "--checkpoints", str(kept)]
    for epochs in (2, 5):
        output = tmp_path / f"out-{epochs}"
        log = call(folder, *command, "--output", str(output), "--hyperparameters", f"epochs={epochs}", image=image)
        found = re.findall(r"\[algo-1 [^]]+\] step=(\d+) loss=(\S+)", log)
        steps.append([int(step) for step, _ in found])
        saved = [path.relative_to(output).parts[0] for path in output.glob("algo-*/ml/model/1/saved_model.pb")]
        assert saved == ["algo-1"]
    assert steps == [[32, 64], [96, 128, 160]]
    assert float(found[-1][1]) < 0.02
