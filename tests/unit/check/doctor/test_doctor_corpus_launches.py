"""Test launch scripts like public ones, and exported notebooks: all jobs are found, without false findings."""

from pathlib import Path

import pytest
from corpus_launches import BOTO3, DEFAULT, OF_BOTO3, with_model_trainers
from looking import REQUEST

from entrypoint.base.severity import Severity
from entrypoint.check.doctor.doctor import examine, sort_out

# Each kind has a sibling in DEFAULT.
SHAPES = [pytest.param(name, marks=[] if name in DEFAULT else [pytest.mark.more], id=name) for name in OF_BOTO3]


def written(folder: Path, name: str) -> Path:
    before, submits, _, _ = OF_BOTO3[name]
    path = folder / "submit.py"
    path.write_text(f"#!/usr/bin/env python\n{before}{BOTO3}request = {REQUEST!r}\n{submits}")
    return path


@pytest.mark.parametrize("name", OF_BOTO3)
def test_script_that_submits_a_job_is_a_launch_script(name: str, tmp_path: Path) -> None:
    assert sort_out([str(written(tmp_path, name))]).launches


@pytest.mark.parametrize("name", SHAPES)
def test_launch_script_gives_the_labelled_jobs(name: str, tmp_path: Path) -> None:
    report = examine([str(written(tmp_path, name))])
    worse = {each.check for each in report.findings if each.severity > Severity.NOTE}
    assert (worse, len(report.jobs)) == (OF_BOTO3[name][2], OF_BOTO3[name][3]), report.findings


def test_scripts_with_model_trainers_are_launch_scripts(tmp_path: Path) -> None:
    """tests/sdk tests the findings on these scripts, with the SDK installed."""
    for at, script in enumerate(with_model_trainers().values()):
        path = tmp_path / f"submit{at}.py"
        path.write_text(script.text)
        assert sort_out([str(path)]).launches, script.text


@pytest.mark.parametrize("package", ["sagemaker/train", "sagemaker/modules/train"])
def test_model_trainer_arguments_become_the_job(package: str, tmp_path: Path) -> None:
    """A short class stands in for the ModelTrainer of SDK v3 and of late releases of v2."""
    folder = tmp_path / package
    folder.mkdir(parents=True)
    (folder / "model_trainer.py").write_text(f"""
import boto3
from types import SimpleNamespace


class ModelTrainer:
    distributed, training_mode = None, ""
    source_code = SimpleNamespace(source_dir="src", command="exec train")

    def train(self, channels):
        boto3.client("sagemaker", region_name="eu-west-1").create_training_job(**{REQUEST!r})
""")
    path = tmp_path / "submit.py"
    path.write_text(f"from {package.replace('/', '.')}.model_trainer import ModelTrainer\nModelTrainer().train([])\n")
    (job,) = examine([str(path)]).jobs
    launch = job.request.launch
    assert launch is not None
    assert (launch.sdk, launch.command, launch.source_dir, launch.line) == ("v3", "exec train", "src", 2)
