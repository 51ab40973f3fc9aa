"""Test that `entrypoint doctor` runs launch scripts with both of Amazon's SDKs, and reports errors of requests."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import corpus_launches
import pytest
from local_mode import ROOT, needed_python
from test_submit import IMAGE, ROLE, blocks_for
from variants import variants

from entrypoint.base.severity import Severity
from entrypoint.check.doctor.doctor import DoctorReport, examine
from entrypoint.check.doctor.output import as_text
from entrypoint.cli import main, new

sys.path.insert(0, str(ROOT / "tests/unit/check/doctor"))
from looking import check_remedy, fixed

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
Ask = Callable[..., DoctorReport]


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Examine a launch script with an SDK's own Python, in a folder with src/train.py and tf_launcher."""

    def examined(sdk: str, text: str, train: str = TRAIN, requirements: str = "") -> DoctorReport:
        python = needed_python(sdk)
        (tmp_path / "tf_launcher").symlink_to(ROOT / "examples/tf_launcher")
        (tmp_path / "src").mkdir()
        (tmp_path / "src/train.py").write_text(train)
        if requirements:
            (tmp_path / "src/requirements.txt").write_text(requirements)
        (tmp_path / "submit_job.py").write_text(text)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("UV_OFFLINE", "1")  # requirements are compared by their versions alone
        return examine(["submit_job.py"], python=str(python), environment={**ENVIRONMENT, "HOME": str(tmp_path)})

    return examined


def call(folder: Path, sdk: str, *words: str, **environment: str) -> str:
    """Run `entrypoint doctor` on a launch script; check that it exits with 0, and return its output."""
    command = [sys.executable, "-m", "entrypoint", "doctor", "--strict", "--python", needed_python(sdk), *words]
    variables = {**ENVIRONMENT, **environment}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=400, env=variables)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def checks(report: DoctorReport) -> set[str]:
    return {each.check for each in report.findings if each.severity >= Severity.WARNING}


@dataclass(frozen=True, kw_only=True)
class Script:
    """A launch script and the expected report. It starts many jobs, since importing an SDK takes longest.

    `found`: {check: text of its finding}; `jobs`: how many requests there are, of which `mpi`, the first
    ones, run a rank on each of two hosts; `says`: texts of the report.
    """

    sdk: str
    text: str
    train: str = TRAIN
    found: dict[str, str]
    jobs: int
    mpi: int = 0
    says: str = ""


MPI_OF_V2 = 'framework_version="2.14", distribution={"mpi": {"enabled": True}}'
MPI_OF_OURS = 'environment={"ENTRYPOINT_MODE": "mpi"}'
SCRIPTS = {
    # An Estimator with our setting; the class for TensorFlow, with the SDK's own; a job of the local mode.
    "right jobs of v2": Script(
        sdk="v2",
        text=f"""{V2}
Estimator(**common, {MPI_OF_OURS}).fit("s3://bucket/rows")
TensorFlow(**common, {MPI_OF_V2}).fit("s3://bucket/rows")
here = {{**common, "instance_type": "local"}}
Estimator(**here, {MPI_OF_OURS}, output_path="file:///tmp/out").fit("s3://bucket/rows")
""",
        found={"local-mode": "Estimator(**here"},
        jobs=3,
        mpi=3,
        says="differs   each rank has the SM_* of its own host",
    ),
    # An Estimator drops a distribution. `fit` of a job on spot instances tells at its end how much they have saved, and
    # the script goes on behind it. TensorFlow adds `--model_dir`, which a strict script refuses.
    "what v2 drops and adds": Script(
        sdk="v2",
        text=f"""{V2}
Estimator(**common, distribution={{"mpi": {{"enabled": True}}}}, colour="red").fit("s3://bucket/rows")
spot = dict(use_spot_instances=True, max_wait=90000, checkpoint_s3_uri="s3://bucket/c")
job = Estimator(**common, {MPI_OF_OURS}, **spot)
job.fit("s3://bucket/rows")
job.fit("s3://bucket/rows")
TensorFlow(**common, {MPI_OF_V2}).fit("s3://bucket/rows")
""",
        train=TRAIN.replace("--model_dir", "--epochs"),
        found={
            "distribution-dropped": "colour",
            "nothing-shared": "",
            "argument-dropped": "colour",
            "argument-unknown": "",
            "no-checkpoint": "",
        },
        jobs=4,
        says='"ENTRYPOINT_MODE": "mpi"',
    ),
    # Its TypeError does not mention that it wants a version.
    "workers of v2 that mirror": Script(
        sdk="v2",
        text=f"""{V2}
mirrored = {{"multi_worker_mirrored_strategy": {{"enabled": True}}}}
TensorFlow(**common, distribution=mirrored).fit("s3://bucket/rows")
""",
        found={"launch-failed": ""},
        jobs=0,
        says='framework_version="2.14"',
    ),
    # As they should be are code as a channel, our Launcher, a command that leaves bash, and a job of the local mode.
    # The last two jobs get drivers of the SDK's own, and a shell that keeps SIGTERM.
    "what v3 starts": Script(
        sdk="v3",
        text=f"""{V3}
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
keeps = SourceCode(source_dir="src", command="train")
ModelTrainer(**common, source_code=keeps, hyperparameters=program).train([rows])
""",
        found={"not-our-entrypoint": "MPI())", "command-keeps-sigterm": "source_code=keeps", "local-mode": "**here)"},
        jobs=6,
        mpi=4,
    ),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_doctor_reports_findings_of_launch_scripts(ask: Ask, name: str) -> None:
    script = SCRIPTS[name]
    report = ask(script.sdk, script.text, script.train)
    told = checks(report) | {"local-mode"}
    found = {each.check: each for each in report.findings if each.check in told}
    assert found.keys() == script.found.keys()
    lines = script.text.splitlines()
    for check, words in script.found.items():
        assert words == "" or words in lines[found[check].place.line - 1], f"{check} is at {found[check].place}"
    assert len(report.jobs) == script.jobs
    titles = [job.plan.title if job.plan else "" for job in report.jobs[: script.mpi]]
    assert titles == script.mpi * ["MPI: 2 ranks on 2 hosts, 1 on each"]
    assert script.says in as_text(report)


OF_LAUNCHES = {f"{rule} {each.get('variant', '')}": (rule, each) for rule, each in fixed() if "sdk" in each}


@pytest.mark.parametrize(("rule", "example"), variants(OF_LAUNCHES, "distribution-dropped "))
def test_remedy_ends_its_finding_and_brings_no_other(rule: str, example: dict[str, Any], tmp_path: Path) -> None:
    python = str(needed_python(example["sdk"]))
    check_remedy(rule, example, tmp_path, python=python, environment={**ENVIRONMENT, "HOME": str(tmp_path)})


@older
def test_doctor_finds_nothing_in_submit_py(sdk: str) -> None:
    arguments = ("examples/deepfm/train.py", "--mode", "mpi", "--instances", "2", "--image", IMAGE, "--role", ROLE)
    channels = ("--channel", "training=s3://bucket/rows/", "--checkpoints", "s3://bucket/checkpoints", "--spot")
    said = call(ROOT, sdk, "examples/submit.py", "--args", *arguments, *channels)
    assert "MPI: 2 ranks on 2 hosts, 1 on each" in said
    assert "0 errors, 0 warnings" in said


@older
def test_doctor_finds_nothing_in_documented_examples(ask: Ask, sdk: str) -> None:
    names = {"image": IMAGE, "role": ROLE, "IMAGE": IMAGE, "ROLE": ROLE}
    report = ask(sdk, "\n".join([*(f"{key} = {value!r}" for key, value in names.items()), *blocks_for(sdk)]), train="")
    assert len(report.jobs) >= 8
    assert checks(report) == set()


@pytest.mark.parametrize("name", variants({name: name for name in corpus_launches.OF_V2}, "v1's names"))
def test_doctor_reports_exactly_the_listed_findings_of_v2_scripts(ask: Ask, name: str) -> None:
    call, wanted = corpus_launches.OF_V2[name]
    quiet = "debugger_hook_config=False, disable_profiler=True"
    quiet += "" if "Estimator" in call else ", model_dir=False"
    text = f"{corpus_launches.TF}IMAGE = {IMAGE!r}\n"
    text += f"common = dict(role={ROLE!r}, entry_point='train.py', source_dir='src', {quiet})\n{call}"
    report = ask("v2", text, train="import horovod.tensorflow as hvd\n\nhvd.init()\n")
    assert checks(report) == wanted, as_text(report)
    renamed = [each for each in report.findings if each.check == "argument-renamed"]
    assert bool(renamed) == ("distributions=" in call or "train_" in call), as_text(report)


@pytest.mark.more  # 5 s each; tests above have each kind, and tests/unit/doctor the release of SDK v2 with this class
@pytest.mark.parametrize("name", WITH_MODEL_TRAINERS)
def test_doctor_reports_exactly_the_listed_findings_of_model_trainer_scripts(ask: Ask, name: str) -> None:
    script = WITH_MODEL_TRAINERS[name]
    report = ask(script.sdk, script.text, script.train, script.requirements)
    assert (checks(report), len(report.jobs)) == (script.wanted, 1), as_text(report)


PLANS = {
    "single": "single: the script alone",
    "ps": "parameter servers: 2 ps, 1 chief, 1 worker (TensorFlow servers) on 2 hosts",
    "mwms": "MultiWorkerMirrored: 2 workers on 2 hosts",
    "mpi": "MPI: 2 ranks on 2 hosts, 1 on each",
    "jax": "JAX: 2 processes on 2 hosts",
}
PROJECTS = {f"{mode}, {sdk}": (mode, sdk) for mode in PLANS for sdk in new.SDKS}


# In unit/test_new.py the doctor reads the script of each mode.
@pytest.mark.parametrize("mode, sdk", variants(PROJECTS, "ps, 3"))
def test_doctor_finds_nothing_in_new_projects(mode: str, sdk: str, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    assert main.run(["new", str(folder), "--mode", mode, "--sdk", sdk], {}) == 0
    given = ["--args", "--role", "arn:aws:iam::000000000000:role/x", "--checkpoints", "s3://bucket/c"]
    for arguments in [[], given] if mode == "mpi" else [[]]:
        said = call(folder, f"v{sdk}", "submit.py", *arguments, HOME=str(tmp_path), PYTHONPATH=str(ROOT))
        assert PLANS[mode] in said
        assert "0 errors, 0 warnings, 0 notes" in said
