"""Test mode `jax` with and without the package jax, on two hosts of this machine.

jax is in a separate folder, since it needs another NumPy than TensorFlow 2.14.
"""

import importlib.util
import os
import re

import pytest
from hosts import JAX, PROGRAMS, ROOT

# Each step trains on this process alone, and averages the loss. Keras says how many weights there are.
AVERAGES = """
import time
import jax, numpy as np
from sagemaker_tf_data import initialize_jax
place = initialize_jax()

import keras
from keras.src.optimizers.base_optimizer import Optimizer

def sharding(devices, *axes):
    return jax.sharding.NamedSharding(jax.sharding.Mesh(devices, ("batch",)), jax.sharding.PartitionSpec(*axes))

variable, sgd = keras.Variable(262_144), Optimizer()
weights = jax.device_put(np.zeros(262_144, np.float32), sharding(jax.local_devices()))
x = np.full((8, len(weights)), 1 + place.rank, np.float32)
x = jax.make_array_from_process_local_data(sharding(jax.local_devices(), "batch"), x)

@jax.jit
def step(weights, x):
    loss, grads = jax.value_and_grad(lambda at: jax.numpy.mean((x @ at - 1) ** 2))(weights)
    sgd.apply([grads], [variable])
    return weights - 0.01 / len(weights) * grads, loss

mean, of_all = jax.jit(jax.numpy.mean), sharding(jax.devices(), "batch")
for number in range(100_000):
    weights, loss = step(weights, x)
    loss = mean(jax.make_array_from_process_local_data(of_all, np.asarray(loss).reshape(1)))
    print(f"step={number} loss={float(loss):.4f}", flush=True)
    time.sleep(0.04)
"""
# What programs/on_path/ looks for, where it lies in Keras 3. Keras itself is not installed beside jax.
KERAS = {
    **dict.fromkeys(("keras/src/__init__.py", "keras/src/optimizers/__init__.py"), ""),
    "keras/__init__.py": """
class DataParallel:
    pass
class Variable:
    def __init__(self, size):
        self.shape = (size,)
class distribution:
    DataParallel = DataParallel
    def distribution():
        return None
""",
    "keras/src/optimizers/base_optimizer.py": """
class Optimizer:
    def apply(self, grads, trainable_variables):
        pass
""",
}


@pytest.fixture
def trains(hosts):
    """Start jobs of two hosts with jax."""
    if not JAX.exists():
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(f"no {JAX}; tests/run.sh makes it")

    def start(asked: dict[str, object] | None = None, code: dict[str, str] | None = None, **settings: object):
        path = {"PYTHONPATH": f"{JAX}{os.pathsep}{ROOT}"}
        program = "train.py" if code else "jax_cell.py"
        return hosts(2, program, code=code, mode="jax", hyperparameters=asked, environment=path, **settings)

    return start


def test_jax_process_that_raises_ends_the_job_and_is_named(trains):
    """Without the launcher, jax would wait 300 s for the other process, which waits in a collective for this one."""
    job = trains(asked={"do": "raises", "steps": 100_000})
    assert job.must_end(1, within=200) == "algo-1 worker/0 (exit code 1): ValueError: bad batch"
    assert "Shutdown barrier" not in job[1].log + job[2].log


def test_sleeping_process_is_reported_as_a_hang_but_a_computing_one_is_not(trains):
    """The other process waits in a collective of gloo, in native code that py-spy cannot unwind."""
    job = trains(HANG_AFTER=2, HANG_ACTION="fail", asked={"do": "works and hangs", "on": 0, "steps": 100_000})
    first = job.must_end(72, "algo-1 worker/0 (no progress): no progress in any process for 2 s: ")
    assert "has worked" in job[1].log
    sleeps = (PROGRAMS / "jax_cell.py").read_text().partition("time.sleep(600)")[0].count("\n") + 1
    waits = r"worker/1 on algo-2 is in jax_cell.py:\d+ jit \(waits( in jax)?\)"
    assert re.search(rf"worker/0 on algo-1 is in jax_cell.py:{sleeps} act \(sleeps\), {waits}", first)


def test_two_processes_on_each_host_train_one_model_and_resume(trains):
    again = {"RESTARTS": 1, "RESTART_BACKOFF": 0.2}
    job = trains(asked={"do": "kills at first", "on": 3}, each=2, **again)
    job.must_end(0)
    assert [told["weights"] for told in job.json_of("process-*.json")] == [[1.0, 2.0, 3.0]] * 4
    assert "attempt 0 failed: algo-2 worker/3 (killed by SIGKILL)" in job[1].log
    assert "process 3 of 4, with 1 of 4 devices (cpu)" in job[2].log


def test_all_jax_processes_save_at_the_same_step_after_sigterm(trains):
    job = trains(asked={"do": "saves", "steps": 100_000})
    job.says("acts at")
    job.stop()
    job.must_end(0)
    lines = [line for host in job.hosts.values() for line in host.log.splitlines() if "saved at" in line]
    assert len(lines) == 2 and len({line.rpartition(" ")[2] for line in lines}) == 1


def test_jax_processes_that_train_separate_models_are_reported(trains):
    """The processes average the loss but not the gradients."""
    job = trains(code={"train.py": AVERAGES, **KERAS})
    told = job.says("distributed: (.*)")[1]
    job.stop()
    said = r"NO: (every host|algo-\d) trains alone \(exchanged \S+ kB, and no gradients of 262,144 weights"
    assert re.match(said, told.strip()), told
    job.must_end(143)


@pytest.mark.skipif(importlib.util.find_spec("jax") is not None, reason="jax is installed")
def test_job_without_jax_ends_before_the_script_starts(hosts):
    job = hosts(2, code="print('trains')\n", mode="jax")
    first = job.must_end(78)
    assert "trains" not in job[1].log
    assert "jax is not installed, and mode jax is for programs that train with it. Wanted it in the image" in first


def test_a_shell_script_runs_without_jax_in_the_launchers_python(hosts):
    """A shell script may start another Python, which has jax."""
    script = 'echo "$JAX_PROCESS_ID of $JAX_NUM_PROCESSES, $KERAS_BACKEND"\n'
    job = hosts(2, "train.sh", code=script, mode="jax", environment={"KERAS_BACKEND": "torch"})
    job.must_end(0)
    assert "1 of 2, torch" in job[2].log
