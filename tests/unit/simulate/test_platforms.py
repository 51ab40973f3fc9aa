"""Test that `entrypoint local --engine docker`, and the doctor in an image, tell of an image for another platform."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from entrypoint.cli.main import run
from entrypoint.simulate.docker_engine import DockerEngine
from entrypoint.simulate.spec import LocalJob

AMD64, ARM64 = "linux/amd64", "linux/arm64"
DOCKER = """#!/bin/sh
case "$1" in
    version) echo {daemon} ;;
    image) echo {image} ;;
    run)
        echo "WARNING: The requested image's platform ({image}) does not match the detected host platform" >&2
        {run}
        ;;
esac
"""
EMULATED = "exit 0"
NOT_EMULATED = """
    echo "exec /usr/bin/true: exec format error" >&2
    echo "Run 'docker run --help' for more information" >&2
    exit 1
"""
NOT_ASKED = "exit 99"


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that puts a `docker` command on PATH, with an image of any platform."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")

    def put(**words: str) -> None:
        (tmp_path / "docker").write_text(DOCKER.format(**words))
        (tmp_path / "docker").chmod(0o755)

    return put


@pytest.mark.parametrize(
    "daemon, image, environment, said",
    [
        (ARM64, AMD64, {}, ["(linux/arm64)", "--platform linux/arm64`", "sagemaker-tf-entrypoint:latest-arm64"]),
        (AMD64, ARM64, {}, ["(linux/amd64)", "`./build.sh`, then --image sagemaker-tf-entrypoint:latest)"]),
        (ARM64, ARM64, {"DOCKER_DEFAULT_PLATFORM": AMD64}, ["DOCKER_DEFAULT_PLATFORM is linux/amd64"]),
    ],
)
def test_image_that_docker_cannot_run_is_refused(docker, capfd, tmp_path, daemon, image, environment, said):
    docker(daemon=daemon, image=image, run=NOT_EMULATED)
    assert run(["local", "train.py", "--engine", "docker", "--image", "mine", "--output", "out"], environment) == 78
    terminal = capfd.readouterr().err
    assert terminal.startswith(f"error: the image mine is for {image}, and Docker cannot run it here (")
    assert "exec format error" in terminal and terminal.count("\n") == 1
    assert [words for words in said if words not in terminal] == []
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "daemon, image, how, said",
    [
        (ARM64, AMD64, EMULATED, "emulated on linux/arm64: it is slow, and its TensorFlow aborts if the emulator"),
        (AMD64, ARM64, EMULATED, "emulated on linux/amd64: it is slow; faster: an image for linux/amd64"),
        (ARM64, ARM64, NOT_ASKED, ""),
        (AMD64, AMD64, NOT_ASKED, ""),
    ],
)
def test_emulated_image_is_noted(docker, tmp_path, daemon, image, how, said):
    docker(daemon=daemon, image=image, run=how)
    engine = DockerEngine(LocalJob(program="train.py", source=tmp_path, output=tmp_path / "out"), {}, "mine", None)
    engine.check()
    notes = engine.notes()
    assert len(notes) == bool(said) and all(said in note for note in notes)


@pytest.mark.parametrize("machine, times", [("aarch64", 1), ("x86_64", 0)])
def test_doctor_in_an_image_for_arm_warns_of_sagemaker(capsys, monkeypatch, machine, times):
    monkeypatch.setattr("platform.machine", lambda: machine)
    assert run(["doctor"], {}) == 0
    assert capsys.readouterr().out.count(f"processor: {machine}; an image for it ends with 'exec") == times
