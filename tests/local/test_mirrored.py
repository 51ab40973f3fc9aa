"""Test examples/digits on one host with several devices: virtual CPU devices of TensorFlow replace GPUs."""

import os
import re
import subprocess
import sys

import pytest
from hosts import ROOT

pytestmark = [pytest.mark.tensorflow, pytest.mark.more]  # of an example
AS_TWO = """
import runpy, sys
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_mirrored_copies_on_each_device_learn_the_digits(tmp_path):
    """Two copies reach the weights that one copy reaches with the same batches, and one model is saved."""
    pytest.importorskip("sklearn")
    program = [str(ROOT / "examples/digits/train.py"), "--mirrored=true", "--epochs=4"]
    environ = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
    run = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.argv = {program}\n{AS_TWO}"],
        capture_output=True, text=True, timeout=600,
        env={**environ, "SM_MODEL_DIR": str(tmp_path)},
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    assert "digits: mirrored on 2 devices" in run.stdout
    assert float(re.search(r"digits: test accuracy=([\d.]+) images=360", run.stdout)[1]) > 0.9
    assert (tmp_path / "1" / "saved_model.pb").is_file()
