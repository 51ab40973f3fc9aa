"""Test that a rehearsal refuses, before anything runs, the requirements that the job's image cannot meet."""

import json
from pathlib import Path

import pytest

from entrypoint.check.rehearse.rehearse import Options, rehearse

REQUEST = {
    "TrainingJobName": "job",
    "AlgorithmSpecification": {"TrainingImage": "ours:2.21", "TrainingInputMode": "File"},
    "RoleArn": "arn:aws:iam::123456789012:role/Training",
    "HyperParameters": {"sagemaker_program": "train.py"},
    "OutputDataConfig": {"S3OutputPath": "s3://bucket/out"},
    "ResourceConfig": {"InstanceType": "ml.c5.xlarge", "InstanceCount": 2, "VolumeSizeInGB": 30},
    "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
}


def test_requirements_that_the_image_cannot_meet_are_refused_before_any_run(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("UV_OFFLINE", "1")
    (tmp_path / "request.json").write_text(json.dumps(REQUEST))
    (tmp_path / "train.py").write_text("print('trains')\n")
    (tmp_path / "requirements.txt").write_text("six\nkeras<3\n")
    out = tmp_path / "out"
    options = Options(launch=str(tmp_path / "request.json"), source=tmp_path, channels={}, output=out)
    case, (finding,) = rehearse(options, {}, pytest.fail)
    assert (finding.check, str(finding.severity), case.runs) == ("requirement-refused", "error", ())
    assert finding.found.startswith("line 2 asks for keras<3, and keras is 3.")
    assert "./build.sh --tensorflow 2.14" in finding.instead
