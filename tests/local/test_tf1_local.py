"""Test code for TensorFlow 1: the list of names that this TensorFlow lacks, and the shim."""

import pytest

pytestmark = pytest.mark.tensorflow
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


def test_old_names_in_a_script_are_logged_with_file_and_line(hosts):
    job = hosts(1, code=CODE)
    job.must_end(1)
    assert "module 'tensorflow' has no attribute 'placeholder'" in job[1].failure
    for file, line, name in (
        ("train.py", 8, "placeholder"),
        ("train.py", 10, "Session"),
        ("lib/layers.py", 5, "get_var"),
    ):
        assert job.says(rf"warning: {file} uses .*tf\.{name}\w* \(line {line}; now tf\.compat\.v1\.{name}")
    assert "ENTRYPOINT_TF1=shim" in job[1].log


def test_tf1_shim_refuses_unsupported_code_at_the_start(hosts):
    """Every host reports the code with file and line, before any process imports TensorFlow."""
    code = {**CODE, "lib/layers.py": f"import tensorflow.contrib.slim as slim\n{LAYERS}"}
    job = hosts(2, code=code, mode="mwms", environment=SHIM)
    assert job.end() == [65, 65]
    for number in (1, 2):
        assert "lib/layers.py uses tf.contrib (line 1), which ended with TensorFlow 1" in job[number].failure


def test_tf1_shim_runs_unchanged_code(hosts):
    """The code gets its arguments and modules, and a traceback contains only its own lines."""
    job = hosts(1, code=CODE, environment=SHIM, hyperparameters={"raise": "true", "sagemaker_program": "train.py"})
    assert "ValueError: of the script" in job.must_end(1)
    assert "doubled 8.0 ['--raise', 'True'] __main__" in job[1].log
    assert "under other names" not in job[1].log
    assert "line 14" in job[1].failure and "as_tf1" not in job[1].failure
