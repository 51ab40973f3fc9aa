"""Test that a launch request becomes the same job on simulated hosts."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from entrypoint.base.errors import ConfigError
from entrypoint.check.rehearse.rehearse import Options, rehearse
from entrypoint.check.rehearse.rehearsed_request import Asked, RehearsedJob, asked_for, groups_of, job_for
from entrypoint.check.rehearse.runs import files_in, own_files, shows_reads
from entrypoint.cli.main import run

REQUEST: dict[str, Any] = {
    "TrainingJobName": "job",
    "AlgorithmSpecification": {"TrainingImage": "image:2.14.1-cpu", "TrainingInputMode": "File"},
    "RoleArn": "arn:aws:iam::123456789012:role/Training",
    "HyperParameters": {
        "sagemaker_program": '"train.py"',
        "sagemaker_submit_directory": '"s3://bucket/source.tar.gz"',
        "learning_rate": "0.1",
        "layers": "[1, 2]",
        "name": '"1e3"',
        "model_dir": '"s3://bucket/job/model"',
        "vocabulary": '"s3://bucket/words.txt"',
    },
    "Environment": {"ENTRYPOINT_MODE": "mwms", "ENTRYPOINT_MONITOR": "false", "MINE": "yes"},
    "OutputDataConfig": {"S3OutputPath": "s3://bucket/out"},
    "ResourceConfig": {"InstanceType": "ml.c5.xlarge", "InstanceCount": 3, "VolumeSizeInGB": 30},
    "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
}
SUBMITS = """
import boto3, json, sys
request = json.loads({request!r})
request["TrainingJobName"] = sys.argv[1]
boto3.client("sagemaker", region_name="eu-west-1").create_training_job(**request)
"""


def asked(folder: Path, script: str = "", **changes: Any) -> Asked:
    (folder / "train.py").write_text(script)
    (folder / "request.json").write_text(json.dumps({**REQUEST, **changes}))
    return asked_for(str(folder / "request.json"), (), "python", {})


def job(folder: Path, **changes: Any) -> RehearsedJob:
    checkpoints, output = folder / "kept", folder / "out"
    return job_for(asked(folder, **changes), hosts=2, checkpoints=checkpoints, output=output, mounted=False)


def test_request_of_launch_script_is_read(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    (tmp_path / "submit.py").write_text(SUBMITS.format(request=json.dumps(REQUEST)))
    found = asked_for(str(tmp_path / "submit.py"), ("a-job",), sys.executable, {"PATH": "/usr/bin:/bin"})
    assert (found.program, found.source, found.hosts) == ("train.py", tmp_path, 3)
    assert found.described.request.body["TrainingJobName"] == "a-job"


def test_rehearsed_job_has_hyperparameters_and_environment_of_request(tmp_path: Path) -> None:
    found = job(tmp_path)
    told = found.config_files("algo-1")["hyperparameters.json"]
    assert json.loads(told["sagemaker_program"]) == "train.py"
    assert {name: told[name] for name in ("learning_rate", "layers", "name", "vocabulary")} == {
        "learning_rate": "0.1", "layers": "[1, 2]", "name": '"1e3"', "vocabulary": '"s3://bucket/words.txt"'
    }  # fmt: skip
    assert "sagemaker_submit_directory" not in told, "the code is here"
    assert dict(found.environment) == {"ENTRYPOINT_MODE": "mwms", "ENTRYPOINT_MONITOR": "true", "MINE": "yes"}


def test_rehearsal_writes_nothing_to_s3(tmp_path: Path) -> None:
    found = asked(tmp_path)
    assert (found.moved, found.unmoved) == (("model_dir",), ("vocabulary",))
    told = job(tmp_path).config_files("algo-1")["hyperparameters.json"]
    assert json.loads(told["model_dir"]) == str(tmp_path / "kept/model_dir")
    assert (tmp_path / "kept/model_dir").is_dir()


def test_checkpoint_and_relocated_folders_outlast_hosts(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    assert asked(tmp_path).kept(kept) == [kept / "model_dir"]
    assert asked(tmp_path, CheckpointConfig={"S3Uri": "s3://bucket/kept"}).kept(kept) == [kept]
    nothing = asked(tmp_path, HyperParameters={"sagemaker_program": "train.py"})
    assert nothing.kept(kept) == []


FALLS_BACK = """
import argparse, os
parser = argparse.ArgumentParser()
parser.add_argument("--model", default=os.environ.get("SM_MODEL_DIR", "/opt/ml/model"))
parser.add_argument("--kept", default="/opt/ml/checkpoints")
"""


def test_literal_opt_ml_paths_are_found(tmp_path: Path) -> None:
    """Where hosts are processes, /opt/ml is the machine's own: the script gets another engine or is refused."""
    there, elsewhere = (
        {**REQUEST["HyperParameters"], "kept": f'"{place}"'} for place in ("/opt/ml/checkpoints", "/data/kept")
    )
    assert asked(tmp_path, HyperParameters=there).fixed == ("kept",)
    found = asked(tmp_path, FALLS_BACK, HyperParameters=there).fixed
    assert found == ("kept",), "the job gives what the script would fall back on"
    assert asked(tmp_path, FALLS_BACK).fixed == ("train.py:5",)
    assert asked(tmp_path, FALLS_BACK, HyperParameters=elsewhere).fixed == ()


@pytest.mark.parametrize(("steps", "same"), [("100", True), ("args.steps", True), ("rows // 32", False)])
def test_epoch_of_fixed_steps_has_full_length_on_samples(steps: str, same: bool, tmp_path: Path) -> None:
    assert asked(tmp_path, f"model.fit(rows, steps_per_epoch={steps})\n").same_epochs is same


def test_request_says_what_its_script_does_already(tmp_path: Path) -> None:
    script = """
import signal, tensorflow as tf
signal.signal(signal.SIGTERM, print)
backup = tf.keras.callbacks.BackupAndRestore("/opt/ml/checkpoints")
model.fit(rows, callbacks=[backup]{more})
"""
    found = asked(tmp_path, script.format(more=""))
    assert found.fits and found.writes_checkpoints and found.reads_checkpoints and found.handles_sigterm
    assert not asked(tmp_path, script.format(more=", verbose=0")).fits, "it prints nothing"
    bare = asked(tmp_path, "import tensorflow as tf\nprint(1)\n")
    assert not (bare.fits or bare.writes_checkpoints or bare.reads_checkpoints or bare.handles_sigterm)


def test_each_instance_group_keeps_one_host(tmp_path: Path) -> None:
    groups = [
        {"InstanceGroupName": name, "InstanceType": "ml.c5.xlarge", "InstanceCount": count}
        for name, count in (("servers", 2), ("workers", 6))
    ]
    found = asked(tmp_path, ResourceConfig={"InstanceGroups": groups, "VolumeSizeInGB": 30})
    assert found.hosts == 8
    assert [(group.name, len(group.hosts)) for group in groups_of(found, 4)] == [("servers", 2), ("workers", 2)]
    assert [len(group.hosts) for group in groups_of(found, 1)] == [1, 1]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import boto3\nboto3.client('sagemaker').create_training_job", "submits no job"),
        ("import boto3\nif False:\n    boto3.client('sagemaker').create_training_job()", "without a training job"),
        ("print('trains')", r"submits no job.*`entrypoint local` runs a training script"),
        ("import boto3\n1 / 0\nboto3.client('sagemaker').create_training_job()", "division by zero"),
    ],
)
def test_launch_without_a_training_job_is_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "submit.py").write_text(text)
    with pytest.raises(ConfigError, match=words):
        asked_for(str(tmp_path / "submit.py"), (), sys.executable, {"PATH": "/usr/bin:/bin"})


def test_program_is_found_in_source_or_refused_as_missing(tmp_path: Path) -> None:
    found = asked(tmp_path)
    (tmp_path / "train.py").rename(tmp_path / "elsewhere.py")
    with pytest.raises(ConfigError, match=r"the program of the job, train\.py, is not found.*wanted --source FOLDER"):
        asked_for(str(tmp_path / "request.json"), (), "python", {})
    with pytest.raises(ConfigError, match=r"no program train\.py in --source"):
        asked_for(str(tmp_path / "request.json"), (), "python", {}, found.source)
    (tmp_path / "src").mkdir()
    (tmp_path / "src/train.py").touch()
    assert asked_for(str(tmp_path / "request.json"), (), "python", {}, tmp_path / "src").source == tmp_path / "src"


def test_job_refused_by_the_launcher_is_not_rehearsed(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"our launcher refuses the job: .*ENTRYPOINT_MODE"):
        asked(tmp_path, Environment={"ENTRYPOINT_MODE": "fast"})


def test_access_times_show_the_files_read_by_a_host(tmp_path: Path) -> None:
    if not shows_reads(tmp_path):
        pytest.skip("this file system does not note when a file was read")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "whole").write_text("rows")
    (tmp_path / "part").mkdir()
    (tmp_path / "part/rows").hardlink_to(tmp_path / "whole")
    own_files(tmp_path / "part")
    before = (tmp_path / "part/rows").stat().st_atime
    (tmp_path / "whole").read_text()
    assert (tmp_path / "part/rows").stat().st_atime == before
    (tmp_path / "part/rows").read_text()
    assert (tmp_path / "part/rows").stat().st_atime > before


def test_half_a_saved_model_is_none(tmp_path: Path) -> None:
    variables = tmp_path / "1/variables/variables.index"
    variables.parent.mkdir(parents=True)
    variables.write_text("x")
    assert files_in([tmp_path]) == []
    (tmp_path / "1/saved_model.pb").write_text("x")
    assert len(files_in([tmp_path])) == 2


def test_empty_unfinished_and_event_files_are_not_checkpoints(tmp_path: Path) -> None:
    for name in ("ckpt-1.index", "ckpt-2.index.tmp", "events.out.tfevents.1"):
        (tmp_path / name).write_text("x")
    (tmp_path / "empty").touch()
    assert [path.name for path in files_in([tmp_path])] == ["ckpt-1.index"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["nothing.py"], "there is no file"),
        (["request.json", "--output", "out"], "is not empty"),
        (["request.json", "--seconds", "0"], "--seconds is 0; wanted a number above 0"),
        (["request.json", "--speedup", "nan"], "--speedup is nan"),
        (["request.json", "--channel", "training"], "wanted name=value"),
        (["request.json", "--channel", "training=x"], "the request has no channel"),
    ],
)
def test_wrong_rehearse_arguments_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, words: list[str], told: str
) -> None:
    asked(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out/mine").touch()
    monkeypatch.chdir(tmp_path)
    assert run(["rehearse", *words], {}) == 2
    assert told in capsys.readouterr().err
    assert (tmp_path / "out/mine").exists()


def test_unmeetable_requirements_are_refused_before_any_run(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("UV_OFFLINE", "1")
    asked(tmp_path, AlgorithmSpecification={"TrainingImage": "ours:2.21", "TrainingInputMode": "File"})
    (tmp_path / "requirements.txt").write_text("six\nkeras<3\n")
    options = Options(launch=str(tmp_path / "request.json"), source=tmp_path, channels={}, output=tmp_path / "out")
    case, (finding,) = rehearse(options, {}, pytest.fail)
    assert (finding.check, str(finding.severity), case.runs) == ("requirement-refused", "error", ())
    assert finding.found.startswith("line 2 asks for keras<3, and keras is 3.")
    assert "./build.sh --tensorflow 2.14" in finding.instead
