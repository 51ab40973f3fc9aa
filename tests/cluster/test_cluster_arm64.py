"""Test the image for linux/arm64, by emulation on other machines: each mode trains on two containers and saves a model.

`tests/run.sh --ring arm64` runs it, with `test_image.py`.
"""

import os
import platform
import sys
from pathlib import Path

import pytest
from containers import BUSY, inside, sh

from images import LINE, ROOT

HOUR = 3600.0  # seconds: an emulated TensorFlow takes a minute for its import alone
DIGITS = ROOT / "examples/digits"
WITH_JAX = {"2.21": ["jax"]}
pytestmark = pytest.mark.timeout(2 * HOUR)


def trains(image: str, output: Path, *words: str) -> str:
    """Run a job on two containers by `entrypoint local`; check that it ends well and saves a model; return its log."""
    settings = {**BUSY, "ENTRYPOINT_PEER_TIMEOUT": "300", "OMP_NUM_THREADS": "1"}
    settings["ENTRYPOINT_PS_WORKERS"] = "server"  # as the new project for mode ps wants it
    if "jax" not in words:
        settings["TF_USE_LEGACY_KERAS"] = "1"
    command = [sys.executable, "-m", "entrypoint", "local", *words, "--engine", "docker", "--image", image]
    command += ["--hosts", "2", "--output", str(output)]
    command += [word for name, value in settings.items() for word in ("--env", f"{name}={value}")]
    done = sh(*command, within=HOUR, env={**os.environ, "PYTHONPATH": str(ROOT)}, cwd=output.parent)
    assert [path for path in output.glob("algo-*/ml/model/**/*") if path.is_file()], done.stdout
    return done.stdout


def test_image_is_for_arm64_and_says_so(image: str) -> None:
    assert sh("docker", "image", "inspect", "--format", "{{.Os}}/{{.Architecture}}", image).stdout == "linux/arm64\n"
    assert inside(image, "uname", "-m").stdout == "aarch64\n"


def test_every_program_and_library_is_for_arm64(image: str) -> None:
    """A wheel with a library for another processor would fail only when a script imports it."""
    program = """if True:
        import pathlib
        for path in pathlib.Path("/").glob("[!ps]*/**/*"):
            if path.is_file() and not path.is_symlink():
                with path.open("rb") as file:
                    head = file.read(20)
                if head[:4] == b"\\x7fELF" and head[18:20] != b"\\xb7\\x00":
                    print(path)
    """
    assert inside(image, "python", "-c", program).stdout == ""


@pytest.mark.parametrize("mode", ["single", "mwms", *WITH_JAX.get(LINE, [])])
def test_digits_example_learns_in_this_mode(image: str, tmp_path: Path, mode: str) -> None:
    script = DIGITS / ("train_jax.py" if mode == "jax" else "train.py")
    log = trains(image, tmp_path / "out", str(script), "--mode", mode, "--hyperparameters", "epochs=3")
    assert "accuracy" in log


@pytest.mark.parametrize("mode", ["single", "ps", "mwms", "mpi", *WITH_JAX.get(LINE, [])])
def test_new_project_trains_in_this_mode(image: str, tmp_path: Path, mode: str) -> None:
    sh(sys.executable, "-m", "entrypoint", "new", str(tmp_path / "project"), "--mode", mode, cwd=tmp_path)
    log = trains(image, tmp_path / "out", str(tmp_path / "project/src/train.py"), "--mode", mode)
    assert "step=" in log and "loss=" in log


@pytest.mark.skipif(platform.machine() == "aarch64", reason="this machine runs such images by itself")
def test_local_says_that_the_image_is_emulated(image: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('trains')\n")
    command = [sys.executable, "-m", "entrypoint", "local", str(tmp_path / "train.py"), "--engine", "docker"]
    done = sh(*command, "--image", image, "--output", str(tmp_path / "out"), cwd=tmp_path, within=HOUR)
    assert "linux/arm64" in done.stdout + done.stderr and "emulat" in done.stdout + done.stderr
