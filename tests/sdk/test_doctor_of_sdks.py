"""Test that `entrypoint doctor` runs launch scripts with both of Amazon's SDKs, and finds what their requests lack."""

import os
import subprocess
import sys
from pathlib import Path

import corpus_launches
import pytest
from local_mode import ROOT, python_of
from test_submit import IMAGE, ROLE, blocks_for

from entrypoint.base.severity import Severity
from entrypoint.check.doctor.doctor import DoctorReport, examine
from entrypoint.check.doctor.output import as_text

WITH_MODEL_TRAINERS = corpus_launches.with_model_trainers()
ENVIRONMENT = {"PATH": os.environ["PATH"], "AWS_DEFAULT_REGION": "eu-west-1"}
V2 = f"""
from sagemaker.estimator import Estimator
from sagemaker.tensorflow import TensorFlow

common = dict(
    image_uri={IMAGE!r}, role={ROLE!r}, instance_count=2, instance_type="ml.c5.xlarge",
    entry_point="train.py", source_dir="src", debugger_hook_config=False, disable_profiler=True,
)
"""
V3 = f"""
from sagemaker.core.training.configs import Compute, InputData, SourceCode
from sagemaker.train import ModelTrainer
from sagemaker.train.distributed import MPI

code = InputData(channel_name="code", data_source="src")
rows = InputData(channel_name="training", data_source="s3://bucket/rows/")
common = dict(
    training_image={IMAGE!r}, role={ROLE!r}, compute=Compute(instance_type="ml.c5.xlarge", instance_count=2),
    environment={{"ENTRYPOINT_MODE": "mpi"}},
)
"""
TRAIN = """
import argparse
import os

import horovod.tensorflow.keras as hvd
import tensorflow as tf
from sagemaker_tf_data import file_names, shard

parser = argparse.ArgumentParser()
parser.add_argument("--model_dir")
args = parser.parse_args()
hvd.init()
model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1 * hvd.size())), "mse")
rows = shard(tf.data.TFRecordDataset(file_names("training"))).batch(8)
model.fit(rows, steps_per_epoch=10, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
if hvd.rank() == 0:
    model.save(os.path.join(os.environ["SM_MODEL_DIR"], "1"))
"""


# Each SDK takes seconds of a processor for what the documents show. SDK 2 has tests of its own, and test_submit.py.
older = pytest.mark.parametrize("sdk", [pytest.param("v2", marks=pytest.mark.more), "v3"])


def ask(
    sdk: str,
    folder: Path,
    text: str,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...] = (),
    train: str = TRAIN,
    requirements: str = "",
) -> DoctorReport:
    """Examine a launch script with an SDK's own Python, in a folder with src/train.py."""
    python = python_of(sdk)
    if not python.exists():
        why = f"no environment of SageMaker's SDK {sdk} (tests/sdk/make_environments.sh makes it)"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(why)
    (folder / "src").mkdir()
    (folder / "src/train.py").write_text(train)
    if requirements:
        (folder / "src/requirements.txt").write_text(requirements)
    (folder / "submit_job.py").write_text(text)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("UV_OFFLINE", "1")  # requirements are compared by their versions alone
    home = {**ENVIRONMENT, "HOME": str(folder)}
    return examine(["submit_job.py"], python=str(python), environment=home)


def checks(report: DoctorReport, least: Severity = Severity.WARNING) -> list[str]:
    return [each.check for each in report.findings if each.severity >= least]


def line_of(text: str, words: str) -> int:
    return next(number for number, line in enumerate(text.splitlines(), 1) if words in line)


def test_right_jobs_of_v2_have_no_findings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An Estimator with our setting; the class for TensorFlow, with the SDK's own; a job of the local mode."""
    text = f"""{V2}
Estimator(**common, environment={{"ENTRYPOINT_MODE": "mpi"}}).fit("s3://bucket/rows")
TensorFlow(**common, framework_version="2.14", distribution={{"mpi": {{"enabled": True}}}}).fit("s3://bucket/rows")
here = {{**common, "instance_type": "local"}}
Estimator(**here, environment={{"ENTRYPOINT_MODE": "mpi"}}, output_path="file:///tmp/out").fit("s3://bucket/rows")
"""
    report = ask("v2", tmp_path, text, monkeypatch)
    assert checks(report) == []
    assert [job.plan.title if job.plan else "" for job in report.jobs] == 3 * ["MPI: 2 ranks on 2 hosts, 1 on each"]
    assert [(each.place.line) for each in report.findings if each.check == "local-mode"] == [line_of(text, "**here")]
    assert "differs   each rank has the SM_* of its own host" in as_text(report)


def test_arguments_that_v2_drops_and_adds_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is one script, as importing the SDK takes longest.

    An Estimator drops a distribution. `fit` of a job on spot instances tells at its end how much they have saved, and
    the script goes on behind it. TensorFlow adds `--model_dir`, which a strict script refuses.
    """
    mpi = '{"mpi": {"enabled": True, "processes_per_host": 2}}'
    spot = "use_spot_instances=True, max_wait=90000, checkpoint_s3_uri='s3://bucket/c'"
    text = f"""{V2}
Estimator(**common, distribution={mpi}, colour="red").fit("s3://bucket/rows")
job = Estimator(**common, environment={{"ENTRYPOINT_MODE": "mpi"}}, {spot})
job.fit("s3://bucket/rows")
job.fit("s3://bucket/rows")
TensorFlow(**common, framework_version="2.14", distribution={{"mpi": {{"enabled": True}}}}).fit("s3://bucket/rows")
"""
    report = ask("v2", tmp_path, text, monkeypatch, train=TRAIN.replace("--model_dir", "--epochs"))
    assert len(report.jobs) == 4
    assert [each for each in report.findings if each.check == "launch-failed"] == []
    found = {"nothing-shared", "distribution-dropped", "argument-dropped", "argument-unknown", "no-checkpoint"}
    assert set(checks(report)) == found
    dropped = next(each for each in report.findings if each.check == "distribution-dropped")
    assert dropped.place.line == line_of(text, "colour")
    assert '"ENTRYPOINT_MODE": "mpi"' in dropped.instead


def test_v2_needs_a_version_for_workers_that_mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its TypeError does not mention that."""
    mirrored = 'distribution={"multi_worker_mirrored_strategy": {"enabled": True}}'
    report = ask("v2", tmp_path, f'{V2}TensorFlow(**common, {mirrored}).fit("s3://bucket/rows")\n', monkeypatch)
    assert checks(report) == ["launch-failed"]
    assert 'framework_version="2.14"' in report.findings[0].instead


def test_scripts_that_v3_starts_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is one script, as importing the SDK takes longest.

    As they should be are code as a channel, our Launcher, a command that leaves bash, and a job of the local mode. The
    last two jobs get drivers of the SDK's own, and a shell that keeps SIGTERM.
    """
    (tmp_path / "tf_launcher").symlink_to(ROOT / "examples/tf_launcher")
    text = f"""{V3}
from sagemaker.train.model_trainer import Mode
from tf_launcher import Launcher
program = {{"sagemaker_program": "train.py"}}
ModelTrainer(**common, hyperparameters=program).train([code, rows])
source = SourceCode(source_dir="src", entry_script="train.py")
ModelTrainer(**{{**common, "environment": {{}}}}, source_code=source, distributed=Launcher(mode="mpi")).train([rows])
command = SourceCode(source_dir="src", command="exec train")
ModelTrainer(**common, source_code=command, hyperparameters=program).train([rows])
compute = Compute(instance_type="local_cpu", instance_count=2)
here = {{**common, "compute": compute, "training_mode": Mode.LOCAL_CONTAINER, "hyperparameters": program}}
ModelTrainer(**here).train([code, rows])
source = SourceCode(source_dir="src", entry_script="train.py")
ModelTrainer(**common, source_code=source, distributed=MPI()).train([rows])
command = SourceCode(source_dir="src", command="train")
ModelTrainer(**common, source_code=command, hyperparameters=program).train([rows])
"""
    report = ask("v3", tmp_path, text, monkeypatch)
    found = [(each.check, each.place.line) for each in report.findings if each.severity >= Severity.WARNING]
    assert found == [
        ("not-our-entrypoint", line_of(text, "MPI())")),
        ("command-keeps-sigterm", line_of(text, 'command="train"') + 1),
    ]
    assert len(report.jobs) == 6
    for job in report.jobs[:4]:
        assert job.plan and job.plan.title == "MPI: 2 ranks on 2 hosts, 1 on each"
    assert [each.place.line for each in report.findings if each.check == "local-mode"] == [line_of(text, "**here)")]


@older
def test_submit_py_is_clean(sdk: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ("examples/deepfm/train.py", "--mode", "mpi", "--instances", "2", "--image", IMAGE, "--role", ROLE)
    channels = ("--channel", "training=s3://bucket/rows/", "--checkpoints", "s3://bucket/checkpoints", "--spot")
    if not python_of(sdk).exists():
        pytest.skip(f"no environment of SageMaker's SDK {sdk}")
    command = [sys.executable, "-m", "entrypoint", "doctor", "examples/submit.py", "--strict"]
    command += ["--python", str(python_of(sdk)), "--args", *arguments, *channels]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=400, env=ENVIRONMENT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "MPI: 2 ranks on 2 hosts, 1 on each" in done.stdout
    assert "0 errors, 0 warnings" in done.stdout


@older
def test_examples_of_the_documents_are_clean(sdk: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tf_launcher").symlink_to(ROOT / "examples/tf_launcher")
    names = {"image": IMAGE, "role": ROLE, "IMAGE": IMAGE, "ROLE": ROLE}
    text = "\n".join([*(f"{key} = {value!r}" for key, value in names.items()), *blocks_for(sdk)])
    report = ask(sdk, tmp_path, text, monkeypatch, train="")
    assert len(report.jobs) >= 8
    assert [each for each in report.findings if each.severity >= Severity.WARNING] == []


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, id=name, marks=[] if name == "v1's names" else [pytest.mark.more])  # an SDK takes 15 s
        for name in corpus_launches.OF_V2
    ],
)
def test_launch_scripts_of_v2_have_their_labels(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    call, wanted = corpus_launches.OF_V2[name]
    quiet = "debugger_hook_config=False, disable_profiler=True, model_dir=False"
    quiet = quiet.replace(", model_dir=False", "") if "Estimator" in call else quiet
    text = f"{corpus_launches.TF}IMAGE = {IMAGE!r}\n"
    text += f"common = dict(role={ROLE!r}, entry_point='train.py', source_dir='src', {quiet})\n{call}"
    train = "import horovod.tensorflow as hvd\n\nhvd.init()\n"
    report = ask("v2", tmp_path, text, monkeypatch, train=train)
    assert set(checks(report)) == wanted, as_text(report)
    renamed = [each for each in report.findings if each.check == "argument-renamed"]
    assert bool(renamed) == ("distributions=" in call or "train_" in call), as_text(report)


@pytest.mark.more  # 5 s each; tests above have each kind, and tests/unit/doctor the release of SDK v2 with this class
@pytest.mark.parametrize("name", WITH_MODEL_TRAINERS)
def test_launch_scripts_with_model_trainers_have_their_labels(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = WITH_MODEL_TRAINERS[name]
    report = ask(script.sdk, tmp_path, script.text, monkeypatch, train=script.train, requirements=script.requirements)
    assert (set(checks(report)), len(report.jobs)) == (script.wanted, 1), as_text(report)
