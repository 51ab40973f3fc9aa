"""Test what is promised on macOS, with a Python that lacks what macOS lacks: see tests/macos/sitecustomize.py."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hosts import LONG, ROOT, clean_environment, write

IMAGE = "sagemaker-tf-entrypoint:latest"
TRAINS = """
for step in range(20):
    print(f'step={step} loss={1 / (1 + step):.4f}', flush=True)
"""
REQUEST = {
    "TrainingJobName": "job",
    "RoleArn": "arn:aws:iam::123456789012:role/Training",
    "AlgorithmSpecification": {"TrainingImage": "image:2.14.1-cpu", "TrainingInputMode": "File"},
    "HyperParameters": {"sagemaker_program": "train.py"},
    "Environment": {"ENTRYPOINT_MODE": "single"},
    "OutputDataConfig": {"S3OutputPath": "s3://bucket/out"},
    "ResourceConfig": {"InstanceType": "ml.c5.xlarge", "InstanceCount": 2, "VolumeSizeInGB": 30},
    "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
}
# What the command tells of a daemon, and of the images in the variable IMAGES; what it shall run is printed.
DOCKER = """#!/bin/sh
for last; do :; done
case "$*" in
    *Server.Arch*) echo "$ARCH" ;;
    *"image inspect"*) case " $IMAGES " in *" $last "*) echo linux/$ARCH ;; *) exit 1 ;; esac ;;
    run*) echo "$@" ;;
esac
"""
SHELLS = [name for name in ("bash", os.environ.get("TEST_BASH", "")) if name]  # TEST_BASH: a bash 3.2, as macOS has


def on_macos(*words: object, cwd: Path, module: str = "entrypoint", **environment: str) -> subprocess.CompletedProcess:
    """Run a command of `entrypoint`, or another module or folder, to its end; stderr comes with stdout."""
    place = ["-m", module] if module == "entrypoint" else [module]
    seen = clean_environment(PYTHONPATH=os.pathsep.join(map(str, (ROOT / "tests/macos", ROOT))), **environment)
    return subprocess.run(
        [sys.executable, *place, *map(str, words)], cwd=cwd, env=seen, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=3 * LONG,
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "train.py", TRAINS)
    write(tmp_path / "request.json", json.dumps(REQUEST))
    return tmp_path


@pytest.fixture
def docker(tmp_path: Path) -> str:
    """Return a PATH whose docker is a stand-in."""
    write(tmp_path / "bin/docker", DOCKER).chmod(0o755)
    return f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"


@pytest.mark.parametrize(
    ("words", "code", "wanted"),
    [
        (["plan", "--hosts", "2", "--mode", "mwms"], 0, "worker/1"),
        (["settings"], 0, "ENTRYPOINT_MODE="),
        (["help", "engines"], 0, "on macOS"),
        (["local", "--help"], 0, "default: docker"),
        (["metrics"], 0, "val_loss"),
        (["new", "project"], 0, "test_train.py"),
        (["doctor"], 0, "--engine docker"),
        (["doctor", "train.py"], 0, "0 errors"),
        (["doctor", "request.json"], 0, "0 errors"),
        (
            ["local", "train.py", "--engine", "process"],
            78,
            "--engine process needs Linux, and this is macOS; wanted --engine docker",
        ),
        (["local", "train.py", "--engine", "netns"], 78, "--engine netns needs Linux"),
        (["rehearse", "request.json", "--engine", "process"], 2, "--engine process needs Linux"),
    ],
)
def test_command_runs_on_macos_or_says_what_does(folder: Path, words: list[str], code: int, wanted: str) -> None:
    ran = on_macos(*words, cwd=folder)
    assert (ran.returncode, "Traceback" in ran.stdout) == (code, False), ran.stdout
    assert wanted in ran.stdout


def test_launch_script_is_examined_on_macos(folder: Path) -> None:
    launch = f"import boto3\nboto3.client('sagemaker', region_name='eu-west-1').create_training_job(**{REQUEST!r})\n"
    write(folder / "submit.py", launch)
    ran = on_macos("doctor", "submit.py", cwd=folder)
    assert ran.returncode == 0 and "0 errors" in ran.stdout, ran.stdout


def test_job_of_containers_is_examined_on_macos(local, tmp_path: Path) -> None:
    run = local(TRAINS, count=1, mode="single")
    run.end()
    for words, wanted in (
        (["report", run.output], "report   report.html"),
        (["replay", run.output], "as then, by the same"),
        (["top", run.output, "--once"], "exit code 0"),
    ):
        ran = on_macos(*words, cwd=tmp_path)
        assert ran.returncode == 0 and wanted in ran.stdout, ran.stdout


def test_acceptance_run_is_planned_on_macos(tmp_path: Path) -> None:
    image, role = (
        "123456789012.dkr.ecr.eu-west-1.amazonaws.com/my-training:1",
        "arn:aws:iam::123456789012:role/Training",
    )
    ran = on_macos("--image", image, "--role", role, "--dry-run", cwd=tmp_path, module=str(ROOT / "tests/accept"))
    assert ran.returncode == 0 and "nothing was submitted" in ran.stdout, ran.stdout


@pytest.mark.parametrize(
    ("arch", "images", "code", "wanted"),
    [
        ("arm64", f"{IMAGE} {IMAGE}-arm64", 0, f"{IMAGE}-arm64 entrypoint plan"),
        ("arm64", "", 78, f"no image {IMAGE}-arm64 here; ./build.sh --platform linux/arm64 builds it"),
        ("amd64", f"{IMAGE} {IMAGE}-arm64", 0, f"{IMAGE} entrypoint plan"),
        ("amd64", "", 78, f"no image {IMAGE} here; ./build.sh builds it"),
    ],
)
def test_hosts_are_containers_of_the_machines_image(
    folder: Path, docker: str, arch: str, images: str, code: int, wanted: str
) -> None:
    ran = on_macos("local", "train.py", "--plan", cwd=folder, PATH=docker, ARCH=arch, IMAGES=images)
    assert ran.returncode == code and wanted in ran.stdout, ran.stdout


def test_pipe_is_refused_on_macos(folder: Path, docker: str) -> None:
    write(folder / "rows/1", "1")
    words = ("local", "train.py", "--channel", "training=rows", "--input-mode", "Pipe", "--plan")
    ran = on_macos(*words, cwd=folder, PATH=docker, ARCH="arm64", IMAGES=f"{IMAGE}-arm64")
    assert ran.returncode == 78 and "wanted File or FastFile" in ran.stdout, ran.stdout


def test_rehearsal_takes_containers_on_macos(folder: Path, docker: str) -> None:
    ran = on_macos("rehearse", "request.json", cwd=folder, PATH=docker, ARCH="arm64", IMAGES="")
    assert ran.returncode == 2 and f"no image {IMAGE}-arm64 here" in ran.stdout, ran.stdout
