"""Test code for TensorFlow 1: the list of what this TensorFlow lacks, the shim, and jobs that hang on AWS's images."""

import shutil
from pathlib import Path

import pytest
from hosts import PROGRAMS, Hosts
from sent import PARAMETER_SERVER, by_sdk

pytestmark = pytest.mark.tensorflow
needs_mpi = pytest.mark.skipif(
    not (shutil.which("mpirun") and Path("/usr/sbin/sshd").exists()), reason="needs Open MPI and an ssh daemon"
)
SHIM = {"ENTRYPOINT_TF1": "shim", "TF_CPP_MIN_LOG_LEVEL": "2"}
LAYERS = """import tensorflow


def double(placeholder):
    return tensorflow.multiply(placeholder, tensorflow.get_variable("two", initializer=2.0))
"""
SCRIPT = """import os
import sys

import keras
import tensorflow as tf
from lib.layers import double

x = tf.placeholder(tf.float32, [])
y = double(x)
with tf.Session(config=tf.ConfigProto(allow_soft_placement=True)) as session:
    session.run(tf.global_variables_initializer())
    print("doubled", session.run(y, {x: 4.0}), sys.argv[1:], __name__, flush=True)
if "--raise" in sys.argv:
    raise ValueError("of the script")
"""
CODE = {"train.py": SCRIPT, "lib/__init__.py": "", "lib/layers.py": LAYERS}


def test_a_script_is_told_its_old_names_by_file_and_line(hosts):
    job = hosts(1, code=CODE)
    assert job.end(within=300) == [1]
    assert "module 'tensorflow' has no attribute 'placeholder'" in job[1].failure
    for file, line, name in (
        ("train.py", 8, "placeholder"),
        ("train.py", 10, "Session"),
        ("lib/layers.py", 5, "get_var"),
    ):
        assert job.says(rf"warning: {file} uses .*tf\.{name}\w* \(line {line}; now tf\.compat\.v1\.{name}")
    assert "ENTRYPOINT_TF1=shim" in job[1].log


def test_the_shim_refuses_at_the_start_what_it_cannot_run(hosts):
    """On every host, with its file and line, and before anybody imports TensorFlow."""
    code = {**CODE, "lib/layers.py": f"import tensorflow.contrib.slim as slim\n{LAYERS}"}
    job = hosts(2, code=code, environment={**SHIM, "ENTRYPOINT_MODE": "mwms"})
    assert job.end(within=120) == [65, 65]
    for number in (1, 2):
        assert "lib/layers.py uses tf.contrib (line 1), which ended with TensorFlow 1" in job[number].failure


@pytest.mark.more  # unit/programs/test_as_tf1.py has it with a `tensorflow` of a few lines
def test_the_shim_runs_it_as_it_is(hosts):
    """With its arguments, its own modules, and a traceback of its own lines only."""
    job = hosts(1, code=CODE, environment=SHIM, hyperparameters={"raise": "true", "sagemaker_program": "train.py"})
    assert job.end(within=300) == [1]
    assert "doubled 8.0 ['--raise', 'True'] __main__" in job[1].log
    assert "under other names" not in job[1].log
    assert "ValueError: of the script" in job[1].failure.splitlines()[0]
    assert "line 14" in job[1].failure and "as_tf1" not in job[1].failure


@pytest.mark.more
def test_the_shim_runs_a_package(hosts):
    setup = "from setuptools import setup\nsetup(name='train', py_modules=['train'], packages=['lib'])\n"
    job = hosts(1, code={**CODE, "setup.py": setup}, environment=SHIM)
    assert job.end(within=300) == [0]
    assert "doubled 8.0 [] __main__" in job[1].log


@pytest.mark.more
@needs_mpi
def test_the_shim_runs_ranks(hosts):
    job = hosts(2, code=CODE, environment=SHIM, hyperparameters=by_sdk("train.py", {"sagemaker_mpi_enabled": True}))
    assert job.end(within=300) == [0, 0]
    for number in (1, 2):
        assert "doubled 8.0" in job[number].log


def estimator(hosts, folder: Path, filters: int, *changes: tuple[str, str], **environment: str) -> Hosts:
    """Start AWS's kind of Estimator on three hosts: each a parameter server, with the master or a worker."""
    text = (PROGRAMS / "foreign/estimator.py").read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    sent = by_sdk("train.py", PARAMETER_SERVER, filters=filters, steps=200, model_dir=str(folder / "model"))
    return hosts(3, code={"train.py": text}, hyperparameters=sent, environment=environment)


OLD_NAMES = ("import tensorflow.compat.v1 as tf", "import tensorflow as tf")
TRAINS_ONLY = (
    "tf.estimator.train_and_evaluate(estimator, train_spec, eval_spec)",
    "estimator.train(train_spec.input_fn)",
)
SAYS = ("train_and_evaluate has ended", "train has ended")


@pytest.mark.more
@pytest.mark.parametrize("shim", [False, True], ids=["compat.v1", "shim"])
def test_an_estimator_without_device_filters_ends(hosts, tmp_path, shim):
    """On AWS's images the master's session waits for parameter servers that have left. Here they leave last."""
    job = estimator(hosts, tmp_path, 0, *([OLD_NAMES] if shim else []), **(SHIM if shim else {}))
    assert job.end(within=600) == [0, 0, 0]
    for number in (1, 2, 3):
        assert "train_and_evaluate has ended" in job[number].log
    assert list((job[1].base / "model").glob("*/saved_model.pb"))


@pytest.mark.more
@pytest.mark.parametrize("filters", [0, 1])
def test_an_estimators_train_ends_with_what_to_call_instead(hosts, tmp_path, filters):
    """It waits for ever for a server that it does not start, wherever it runs."""
    job = estimator(hosts, tmp_path, filters, TRAINS_ONLY, SAYS)
    assert job.end(within=600) == [1, 1, 1]
    for number in (1, 2, 3):
        assert "algo-1 chief/0 (listens on no port after 60 s): Estimator.train connects to" in job[number].failure
        assert "Use tf.estimator.train_and_evaluate" in job[number].failure
