"""Test mode `jax`: without jax, and with it, on two hosts of this machine.

jax lies in a folder of its own, as the NumPy that it wants is not what TensorFlow 2.14 wants.
"""

import importlib.util
import json
import os
import re
import signal

import pytest
from hosts import JAX, PROGRAMS, ROOT

MODE = {"ENTRYPOINT_MODE": "jax"}
RAISES = "worker/{} (exit code 1): ValueError: bad batch"
# Each step averages the gradients of all processes, or trains on this process alone and averages the loss. Keras says
# how many weights there are; with --weights 0 nobody does.
EXCHANGES = """
import argparse, time
import jax, numpy as np
from sagemaker_tf_data import initialize_jax

parser = argparse.ArgumentParser()
parser.add_argument("--together", type=int)
parser.add_argument("--weights", type=int)
args = parser.parse_args()
place = initialize_jax()

import keras
from keras.src.optimizers.base_optimizer import Optimizer
keras.distribution.spread = keras.distribution.DataParallel() if args.together else None

def shardings(devices):
    mesh = jax.sharding.Mesh(devices, ("batch",))
    return [jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*axes)) for axes in (["batch"], [])]

of_all_processes, _ = shardings(jax.devices())
rows, everywhere = shardings(jax.devices() if args.together else jax.local_devices())
variable, sgd = keras.Variable(args.weights), Optimizer()
weights = jax.device_put(np.zeros(args.weights or 3, np.float32), everywhere)
x = np.full((8, len(weights)), 1 + place.rank, np.float32)
x = jax.make_array_from_process_local_data(rows, x)

@jax.jit
def step(weights, x):
    loss, grads = jax.value_and_grad(lambda at: jax.numpy.mean((x @ at - 1) ** 2))(weights)
    if args.weights:
        sgd.apply([grads], [variable])
    return weights - 0.01 / len(weights) * grads, loss

mean = jax.jit(jax.numpy.mean)
for number in range(100_000):
    weights, loss = step(weights, x)
    if not args.together:
        loss = mean(jax.make_array_from_process_local_data(of_all_processes, np.asarray(loss).reshape(1)))
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
    DataParallel, spread = DataParallel, None
    def distribution():
        return distribution.spread
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

    def start(environment: dict[str, str] | None = None, code: dict[str, str] | None = None, **asked: object):
        environment = {**MODE, "PYTHONPATH": f"{JAX}{os.pathsep}{ROOT}", **(environment or {})}
        program = "train.py" if code else "jax_cell.py"
        return hosts(2, program, code=code, hyperparameters=asked, environment=environment)

    return start


def weights(job) -> list[list[float]]:
    files = [file for host in job.hosts.values() for file in (host.base / "output/data").glob("process-*.json")]
    return [json.loads(file.read_text())["weights"] for file in files]


def test_a_process_that_raises_ends_the_job_and_is_named(trains):
    """By itself, jax would wait 300 s for the other process, which waits in a collective for this one."""
    job = trains(do="raises", steps=100_000)
    assert job.end(within=200) == [1, 1]
    assert {text.splitlines()[0] for text in job.failures} == {"algo-1 " + RAISES.format(0)}
    assert "Shutdown barrier" not in job[1].log + job[2].log


@pytest.mark.parametrize("on", [0, pytest.param(1, marks=pytest.mark.more)])
def test_a_process_that_works_silently_is_no_hang_and_one_that_sleeps_is(trains, on):
    """The other one waits in a collective of gloo meanwhile, in native code that py-spy cannot unwind."""
    soon = {"ENTRYPOINT_HANG_AFTER": "2", "ENTRYPOINT_HANG_ACTION": "fail"}
    job = trains(soon, do="works and hangs", on=on, steps=100_000)
    assert job.end(within=300) == [72, 72]
    assert "has worked" in job[1 + on].log
    sleeps = (PROGRAMS / "jax_cell.py").read_text().partition("time.sleep(600)")[0].count("\n") + 1
    here, there = f"worker/{on} on algo-{1 + on}", f"worker/{1 - on} on algo-{2 - on}"
    told = rf"{here} is in jax_cell.py:{sleeps} act \(sleeps\), {there} is in jax_cell.py:\d+ jit \(waits( in jax)?\)"
    for failure in job.failures:
        assert failure.startswith(f"algo-{1 + on} worker/{on} (no progress): no progress in any process for 2 s: ")
        assert re.search(told, failure)


@pytest.mark.more
@pytest.mark.parametrize(
    ("do", "on", "code", "text"),
    [
        ("raises", 1, 1, "algo-2 " + RAISES.format(1)),
        ("exits", 1, 3, "algo-2 worker/1 (exit code 3)"),
        ("kills", 0, 137, "algo-1 worker/0 (killed by SIGKILL)"),
        ("kills", 1, 137, "algo-2 worker/1 (killed by SIGKILL)"),
    ],
)
def test_what_ends_a_process_is_the_cause_and_not_what_others_print(trains, do, on, code, text):
    job = trains(do=do, on=on, steps=100_000)
    assert job.end(within=200) == [code, code]
    assert all(failure.startswith(text) for failure in job.failures)


@pytest.mark.more
def test_two_processes_on_each_host_train_one_model_and_start_again(trains):
    again = {"ENTRYPOINT_PROCESSES_PER_HOST": "2", "ENTRYPOINT_RESTARTS": "1", "ENTRYPOINT_RESTART_BACKOFF": "0.2"}
    job = trains(again, do="kills at first", on=3)
    assert job.end(within=300) == [0, 0]
    assert weights(job) == [[1.0, 2.0, 3.0]] * 4
    assert "attempt 0 failed: algo-2 worker/3 (killed by SIGKILL)" in job[1].log
    assert "process 3 of 4, with 1 of 4 devices (cpu)" in job[2].log


@pytest.mark.more
@pytest.mark.parametrize("do", ["saves", ""])
def test_sigterm_reaches_what_asks_jax_and_ends_what_does_not(trains, do):
    job = trains(do=do, steps=100_000)
    job.says("acts at", within=200)
    job.signal(signal.SIGTERM)
    assert job.end(within=60) == ([0, 0] if do else [143, 143])
    steps = {
        line.rpartition(" ")[2] for host in job.hosts.values() for line in host.log.splitlines() if "saved at" in line
    }
    assert len(steps) == bool(do)  # all in one step


@pytest.mark.parametrize(
    "together, weights, said",
    [
        pytest.param(1, 3, r"yes: 2 hosts exchange \S+ k?B a step for 3 weights$", marks=pytest.mark.more),
        (0, 262_144, r"NO: (every host|algo-\d) trains alone \(exchanged \S+ kB, and no gradients of 262,144 weights"),
        pytest.param(0, 3, r"unclear: 2 hosts exchange .*; 3 weights are trained$", marks=pytest.mark.more),
        pytest.param(1, 0, r"unclear: 2 hosts exchange .* is not known$", marks=pytest.mark.more),
    ],
    ids=["gradients of three weights", "a loss", "a loss, three weights", "gradients, how many is not known"],
)
def test_whether_the_processes_train_one_model_is_said(trains, together, weights, said):
    """What is unclear takes a minute of training."""
    job = trains(code={"train.py": EXCHANGES, **KERAS}, together=together, weights=weights)
    told = job.says("distributed: (.*)")[1]
    job.signal(signal.SIGTERM)
    assert re.match(said, told.strip()), told
    assert job.end(within=100) == [143, 143]


@pytest.mark.skipif(importlib.util.find_spec("jax") is not None, reason="jax is installed")
def test_without_jax_the_job_ends_before_the_script_starts(hosts):
    job = hosts(2, "train.py", code={"train.py": "print('trains')\n"}, environment=MODE)
    assert job.end() == [78, 78]
    assert "trains" not in job[1].log
    (failure,) = {text.splitlines()[0] for text in job.failures}
    assert "jax is not installed, and mode jax is for programs that train with it. Wanted it in the image" in failure


def test_a_program_of_another_language_may_find_jax_elsewhere(hosts):
    """A shell script may start a Python of its own."""
    code = {"train.sh": 'echo "$JAX_PROCESS_ID of $JAX_NUM_PROCESSES, $KERAS_BACKEND"\n'}
    job = hosts(2, "train.sh", code=code, environment={**MODE, "KERAS_BACKEND": "torch"})
    assert job.end() == [0, 0]
    assert "1 of 2, torch" in job[2].log
