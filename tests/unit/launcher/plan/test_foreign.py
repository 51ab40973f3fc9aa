"""Test scripts written for other launchers: flags found in their code, and switches of SageMaker's libraries."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from builders import read
from sent import DATA_PARALLEL, PARAMETER_SERVER, by_sdk, mpi

from entrypoint.launcher.job.choices import Mode
from entrypoint.launcher.plan.distributions import common
from entrypoint.launcher.plan.plan import Flag
from entrypoint.launcher.plan.planner import plan_for
from entrypoint.launcher.plan.render import render
from entrypoint.usercode import words

ROOT = Path(__file__).resolve().parents[4]
FOREIGN = ROOT / "tests/programs/foreign"
SMDDP = "sagemaker_distributed_dataparallel_enabled"
OPTIONS = "sagemaker_distributed_dataparallel_custom_mpi_options"

TRAIN, MASTER, ESTIMATOR = Flag.TF1_TRAIN, Flag.TF1_MASTER, "e = tf.estimator.Estimator(f)"


@pytest.fixture(scope="module")
def flags():
    return lambda folder: words.flags(
        "\n".join(map(words.without_comments, (path.read_text() for path in folder.rglob("*.py"))))
    )


@pytest.mark.parametrize(
    "program, found",
    [
        ("estimator.py", ["tf1-sessions", "tf1-master"]),
        ("ps_renames_master.py", []),
        ("ps_tutorial_fit.py", []),
        ("smddp_fit.py", []),
    ],
)
def test_flags_of_scripts_for_other_launchers_are_found(flags, tmp_path, program, found):
    (tmp_path / "train.py").write_bytes((FOREIGN / program).read_bytes())
    assert flags(tmp_path) == found


def test_script_that_submits_the_job_causes_no_flag(flags, tmp_path):
    (tmp_path / "train.py").write_bytes((FOREIGN / "ps_tutorial_fit.py").read_bytes())
    (tmp_path / "submit.py").write_text("import sagemaker\nsagemaker.estimator.Estimator(image_uri='x').fit()\n")
    assert flags(tmp_path) == []


@pytest.mark.parametrize(
    "flag, lines, expected",
    [
        # an Estimator that trains without a server
        (TRAIN, ["tf.estimator.Estimator(f).train(g)"], True),
        (TRAIN, [ESTIMATOR, "e.train(g) if alone else tf.estimator.train_and_evaluate(e, a, b)"], False),
        (TRAIN, [ESTIMATOR, "tf.train.Server(cluster)", "e.train(g)"], False),
        (TRAIN, [ESTIMATOR, "# e.train(g)"], False),
        (TRAIN, ["model.train(g)"], False),
        # a script that knows no chief, and is told of a master
        (MASTER, ["tf.estimator.train_and_evaluate(a, b, c)"], True),
        (MASTER, ["tf.estimator.train_and_evaluate(a, b, c)", "if task == 'chief':"], False),
        (MASTER, ["MonitoredTrainingSession(is_chief=True)"], False),
        (MASTER, ["MonitoredTrainingSession(is_chief=task['type'] == 'master')"], True),
        (MASTER, ["MonitoredTrainingSession(is_chief=task['type'] in ('master', \"chief\"))"], False),
        (MASTER, ["tf.distribute.ParameterServerStrategy(resolver)", "parser.add_argument('master')"], False),
        (MASTER, ["tf.distribute.ParameterServerStrategy(resolver)", "tf.estimator.Estimator(model_fn)"], False),
        (MASTER, ["strategy.fit()  # was: tf.estimator.Estimator(model_fn)", "import sagemaker.estimator"], False),
        (MASTER, ["est = sagemaker.estimator.Estimator(image)", "sagemaker.tensorflow.estimator.Estimator(x)"], False),
    ],
)
def test_code_of_a_script_determines_its_flags(flags, tmp_path, flag, lines, expected):
    for number, line in enumerate(lines):
        (tmp_path / f"file{number}.py").write_text(line)
    assert (flag in flags(tmp_path)) is expected


def tf_configs(job, *flags: Flag) -> dict[str, dict]:
    """Return the TF_CONFIG of each process of the plan, for code with these flags."""
    found = {}
    for spec in plan_for(job).processes:
        env = spec.environment(flags)
        if "TF_CONFIG" in env:
            found[f"{spec.host} {spec.name}"] = json.loads(env["TF_CONFIG"])
    return found


PS = {"sagemaker_parameter_server_enabled": "true"}


def test_rank_0_is_master_only_with_the_tf1_master_flag(tmp_path):
    job = read(tmp_path, 2, PS)
    for flags, name in (((), "chief"), ((Flag.TF1_MASTER,), "master")):
        configs = tf_configs(job, *flags)
        assert len(configs) == 4
        assert {frozenset(config["cluster"]) for config in configs.values()} == {frozenset((name, "ps", "worker"))}
        assert configs["algo-1 chief/0"]["task"] == {"type": name, "index": 0}
        assert configs["algo-2 worker/0"]["task"] == {"type": "worker", "index": 0}
        assert configs["algo-2 ps/1"]["task"] == {"type": "ps", "index": 1}
    assert "if tf1-master" in render(plan_for(job))


@pytest.mark.parametrize(
    "environment, name",
    [
        ({"ENTRYPOINT_PS_CHIEF_NAME": "chief"}, "chief"),
        ({"ENTRYPOINT_PS_CHIEF_NAME": "master"}, "master"),
        ({"ENTRYPOINT_PS_WORKERS": "server"}, "chief"),
        ({"ENTRYPOINT_EVALUATOR": "last"}, "chief"),
    ],
)
def test_requested_or_required_chief_name_ignores_the_flags(tmp_path, environment, name):
    job = read(tmp_path, 2, PS, environment)
    assert tf_configs(job) == tf_configs(job, Flag.TF1_MASTER)
    assert tf_configs(job)["algo-1 chief/0"]["task"]["type"] == name


# --- SageMaker's data-parallel library ---


def more_path(job) -> list[str]:
    (task,) = {spec.stdin for spec in plan_for(job).processes if spec.name == "prepare" and spec.host == "algo-1"}
    return json.loads(task)["more_path"]


def test_data_parallel_switch_starts_ranks_and_provides_smdistributed(tmp_path):
    job = read(tmp_path, 2, by_sdk("train.py", {**DATA_PARALLEL, OPTIONS: "-x A=1"}))
    assert (job.mode, job.processes_per_host, job.mpi_options) == (Mode.MPI, 1, ("-x", "A=1"))
    assert read(tmp_path, 2, by_sdk("train.py", DATA_PARALLEL), gpus=8).processes_per_host == 8
    assert more_path(job) == [str(common.STAND_INS)]
    assert "smdistributed.dataparallel" in render(plan_for(job))


@pytest.mark.parametrize("distribution", [mpi(2), {**mpi(2), SMDDP: False}, PARAMETER_SERVER])
def test_other_jobs_have_no_smdistributed_module(tmp_path, distribution):
    job = read(tmp_path, 2, by_sdk("train.py", distribution))
    assert more_path(job) == []
    assert "smdistributed" not in render(plan_for(job))


@pytest.mark.parametrize("nothing", ["null", "{}", '""', "None"])
def test_empty_mp_parameters_change_nothing(tmp_path, nothing):
    assert read(tmp_path, 2, {"mp_parameters": nothing}).mode is Mode.SINGLE


def python(program: str, *path: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
    return subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    "name, instead",
    [
        ("smdistributed.dataparallel.torch.distributed", "an image with PyTorch"),
        ("smdistributed.modelparallel.tensorflow", "horovod.tensorflow"),
    ],
)
def test_import_error_of_unsupported_library_names_an_alternative(name, instead):
    result = python(f"import {name}", common.STAND_INS)
    last = result.stderr.splitlines()[-1]
    assert last.startswith("ImportError: " + ".".join(name.split(".")[:-1]) + " is not covered: ")
    assert instead in last


def test_installed_library_takes_precedence_over_the_stand_in(tmp_path):
    package = tmp_path / "smdistributed/dataparallel"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("real = True")
    program = "import smdistributed.dataparallel as library; print(hasattr(library, 'real'))"
    assert python(program, tmp_path, common.STAND_INS).stdout == "True\n"
    assert python(program, common.STAND_INS).stdout == "False\n"
    (package.parent / "__init__.py").touch()  # be it a package of the ordinary kind, too
    assert python(program, tmp_path, common.STAND_INS).stdout == "True\n"
