"""Test entrypoint/programs/on_path/ with TensorFlow's own Keras and a short stand-in for Horovod."""

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from types import SimpleNamespace

import pytest
from builders import write_files
from ports import unused_port

from entrypoint.base.secrets import NONE
from entrypoint.observe.monitor.script_socket import Marks

ON_PATH = Path(__file__).resolve().parents[3] / "entrypoint" / "programs" / "on_path"
# Of 0.28.1: which function calls which, and under what names they are imported.
HOROVOD = {
    "horovod/__init__.py": "",
    "horovod/tensorflow/__init__.py": """
import tensorflow as tf
from horovod.tensorflow.mpi_ops import _allreduce, allgather

def allreduce(tensor, name=None):
    return _allreduce(tensor, name=name)

def _make_allreduce_grads_fn(name):
    def allreduce_grads(grads, vars=None, use_generic_names=False):
        return [allreduce(grad) if grad is not None else None for grad in grads]
    return tf.function(allreduce_grads) if tf.executing_eagerly() else allreduce_grads

class DistributedGradientTape:
    def __init__(self, tape):
        self.tape, self.allreduce_grads = tape, _make_allreduce_grads_fn("DistributedGradientTape")

    def gradient(self, target, sources):
        return self.allreduce_grads(self.tape.gradient(target, sources), sources)
""",
    "horovod/tensorflow/mpi_ops.py": """
import tensorflow as tf

def _allreduce(tensor, name=None, op=None):
    return tf.identity(tensor)

def allgather(tensor, name=None):
    return tf.identity(tensor)

def _grouped_allreduce(tensors, name=None, op=None):
    return tensors

_reducescatter, grouped_allgather, _grouped_reducescatter = allgather, _grouped_allreduce, _grouped_allreduce
""",
}
# Each scenario is a function; what was seen of it is printed under its name.
PROGRAM = """
import json, os, sys
import entrypoint_looks_on as looks_on
import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

def dense(*sizes):
    KEPT.append(tf.keras.Sequential([tf.keras.layers.Dense(size) for size in sizes]))
    return KEPT[-1]

DATA = tf.data.Dataset.from_tensors((np.ones((4, 9), "float32"), np.ones((4, 1), "float32"))).repeat(7)

KEPT = []  # what a script holds while it trains

def variable(*shape):
    KEPT.append(tf.Variable(tf.ones(shape)))
    return KEPT[-1]

def fit(optimizer="sgd"):
    model = dense(10, 1)
    model.compile(optimizer, "mse")
    return model.fit(DATA, epochs=2, verbose=0).history["loss"]

def embedding():
    table, head = variable(1000, 8), variable(8, 1)
    sgd = tf.keras.optimizers.SGD(1e-3)
    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(table, [1, 2, 3]) @ head)
        sgd.apply_gradients(zip(tape.gradient(loss, [table, head]), [table, head]))
        return loss
    return [float(step()) for _ in range(3)]

def loop(wrapped=True, average=True, graph=True, by_hand=False):
    weights, sgd = variable(20, 100), tf.keras.optimizers.SGD(1e-3)
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(weights)
        tape = hvd.DistributedGradientTape(tape) if wrapped else tape
        grads = tape.gradient(loss, [weights])
        if by_hand:
            grads = [hvd.allreduce(grad, name="mine") for grad in grads]
        sgd.apply_gradients(zip(grads, [weights]))
        return hvd.allreduce(loss, name="loss") if average else loss
    step = tf.function(step) if graph else step
    return [float(step()) for _ in range(3)]

def session():
    with tf.Graph().as_default(), tf.compat.v1.Session() as run:
        weights = tf.compat.v1.get_variable("weights", initializer=np.ones((20, 100), "float32"))
        KEPT.append(tf.compat.v1.get_default_graph())
        loss = tf.reduce_sum(weights)
        train = tf.compat.v1.train.GradientDescentOptimizer(1e-3).minimize(loss)
        run.run(tf.compat.v1.global_variables_initializer())
        return [run.run([loss, train])[0] for _ in range(3)]

def strategy():
    with tf.distribute.MultiWorkerMirroredStrategy().scope():
        return fit()

def outside():
    tf.distribute.MultiWorkerMirroredStrategy()
    return fit()

def never_run():
    with tf.distribute.MultiWorkerMirroredStrategy().scope():
        model, sgd = dense(1), tf.keras.optimizers.SGD(1e-3)
        model.build((None, 9))
    losses = []
    for rows, labels in DATA:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(rows) - labels) ** 2)
        sgd.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
        losses.append(float(loss))
    return losses

def both():
    strategy()
    return fit()

def broken():
    size_of, looks_on.size_of = looks_on.size_of, None  # every look fails
    fit()
    losses = loop()
    looks_on.size_of = size_of
    return losses

RUNS = {
    "fit": fit, "legacy": lambda: fit(tf.keras.optimizers.legacy.Adam()), "embedding": embedding, "session": session,
    "strategy": strategy, "wrapped": loop, "wrapped, eager": lambda: loop(graph=False),
    "unwrapped": lambda: loop(wrapped=False),
    "by hand, eager": lambda: loop(wrapped=False, by_hand=True, graph=False), "broken": broken,
    "outside": outside, "never run": never_run, "both": both,
}
for name, run in RUNS.items():
    losses = run()
    assert losses[-1] < losses[0], losses
    print(json.dumps([name, looks_on.SEEN.facts()]), flush=True)
    horovod = looks_on.SEEN.horovod
    looks_on.SEEN.__init__()
    looks_on.SEEN.horovod = horovod
fit()  # it comes at the end of the program
"""
LINES = PROGRAM.splitlines()
MADE = LINES.index("    KEPT.append(tf.keras.Sequential([tf.keras.layers.Dense(size) for size in sizes]))") + 1
IN_DENSE = f"train.py:{MADE} (called at train.py:{LINES.index('    model = dense(10, 1)') + 1})"
APPLIED = LINES.index("        losses.append(float(loss))")
FIT = {"weights": 111, "dense": 111, "steps": 14, "gradients": 0, "asked": 0, "reduced": 0, "workers": 0}
LOOP = {"weights": 2000, "dense": 2000, "horovod": 1}
SEEN = {
    "fit": FIT,
    "legacy": FIT,
    "embedding": {"weights": 8008, "dense": 8, "steps": 0},
    "session": {"weights": 2000, "dense": 2000, "steps": 0},
    "strategy": {**FIT, "strategy": "CollectiveAllReduceStrategy", "workers": 1},
    "wrapped": {**LOOP, "tensors": 1, "gradients": 2000, "asked": 2001, "largest": 2000, "steps": 0},
    "wrapped, eager": {**LOOP, "gradients": 2000, "largest": 2000, "steps": 3},
    "unwrapped": {**LOOP, "tensors": 0, "gradients": 0, "asked": 1, "largest": 1},
    "by hand, eager": {**LOOP, "gradients": 0, "asked": 2001, "largest": 2000, "reduced": 6003, "steps": 3},
    "broken": {"weights": 0, "gradients": 0},
    "outside": {**FIT, "strategy": "", "made": 1, "others": 0, "made_at": IN_DENSE},
    "never run": {"strategy": "", "made": 1, "steps": 7, "made_at": ""},
    "both": {"strategy": "CollectiveAllReduceStrategy", "workers": 1, "made": 1, "made_at": ""},
}


def of_job(
    words: list[str], *path: Path, without: tuple[str, ...] = (), **variables: str
) -> subprocess.CompletedProcess:
    """Run Python as in a job, with these folders on its path and without variables with these prefixes."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("ENTRYPOINT_", *without))}
    environment |= {"PYTHONPATH": os.pathsep.join(map(str, path)), "ENTRYPOINT_MARKS": "/nowhere"}
    environment |= {"ENTRYPOINT_PROCESS": "rank 3", "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, *words]
    return subprocess.run(command, env=environment | variables, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """Return the observations of each run, and the messages that the monitor received of the last run."""
    folder = write_files(tmp_path_factory.mktemp("looks_on"), {**HOROVOD, "train.py": PROGRAM})
    marks = Marks(folder / "marks.sock", NONE.mask)
    with contextlib.closing(marks), ThreadPoolExecutor(1) as pool:
        script = [str(folder / "train.py")]
        running = pool.submit(of_job, script, folder, ON_PATH, ENTRYPOINT_MARKS=str(folder / "marks.sock"))
        while not wait([running], 0.2).done:  # as the monitor does: the socket holds ten messages
            marks.receive()
        done = running.result()
        assert done.returncode == 0, done.stderr
        marks.receive()
        models = {line.process: line.model for line in marks.take()[1]}
    return dict(json.loads(line) for line in done.stdout.splitlines()), models


@pytest.mark.parametrize("run", SEEN)
def test_training_and_reductions_are_observed(told, run):
    assert {name: told[0][run][name] for name in SEEN[run]} == SEEN[run]


def test_loop_outside_the_strategy_is_reported_by_line(told):
    assert told[0]["never run"]["trained_at"].startswith(f"train.py:{APPLIED} (called at ")


def test_observed_facts_reach_the_monitor(told):
    assert told[1].keys() == {"rank 3"}
    assert {name: told[1]["rank 3"][name] for name in FIT} == FIT


STARTS = """
import sys
before = sorted({"typing", "threading", "entrypoint_looks_on"} & set(sys.modules))
try:
    import horovod
except ImportError:
    pass
print(before, "entrypoint_looks_on" in sys.modules, any("First" in repr(each) for each in sys.meta_path))
"""


def python(*path: Path, **variables: str) -> str:
    """Return the output of a Python with these folders on its path."""
    # What measures the coverage imports modules before any sitecustomize does.
    done = of_job(["-c", STARTS], *path, without=("COVERAGE_",), **variables)
    assert done.returncode == 0, done.stderr
    return done.stdout


# What is imported before the first framework; whether it is looked on then, and whether that is still awaited.
LOOKS_ON, LOOKS_NOT = "[] True False\n", "[] False False\n"


def test_only_job_processes_are_observed(tmp_path):
    assert python(ON_PATH) == LOOKS_ON
    assert python(ON_PATH, ENTRYPOINT_MARKS="", ENTRYPOINT_PROCESS="") == LOOKS_NOT


def test_other_sitecustomize_runs_unchanged(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("print('of the image', __name__, __file__)\n")
    said = f"of the image sitecustomize {tmp_path}/sitecustomize.py\n"
    assert python(ON_PATH, tmp_path) == said + LOOKS_ON
    assert python(tmp_path, ON_PATH) == said + LOOKS_NOT, "one of the user's comes first, and nobody looks on"


def test_python_starts_though_the_observer_fails(tmp_path):
    sitecustomize = (ON_PATH / "sitecustomize.py").read_text()
    write_files(tmp_path, {"sitecustomize.py": sitecustomize, "entrypoint_looks_on.py": "raise RuntimeError\n"})
    assert python(tmp_path) == LOOKS_NOT


BASICS = """
import threading

class HorovodBasics:
    def init(self, *args):
        threading.Thread(target=self.wait, daemon=True).start()

    def wait(self):
        threading.Thread(target=threading.Event().wait, daemon=True).start()  # as NCCL's, later
        threading.Event().wait()
"""
INITS = """
import pathlib, threading
before = threading.Thread(target=threading.Event().wait, daemon=True)
before.start()
from horovod.common.basics import HorovodBasics
HorovodBasics().init()
names = [(task / "comm").read_text().strip() for task in pathlib.Path("/proc/self/task").iterdir()]
print(names.count("horovod") >= 1, "horovod" not in names[:2])
"""


def test_horovod_threads_have_a_name(tmp_path):
    packages = {"horovod/__init__.py": "", "horovod/common/__init__.py": "", "horovod/common/basics.py": BASICS}
    done = of_job(["-c", INITS], write_files(tmp_path, packages), ON_PATH)
    assert done.stdout.split() == ["True", "True"], done.stderr


STRATEGY = """
import json, os, signal, sys
if "handled" in sys.argv:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
import tensorflow as tf
tf.distribute.MultiWorkerMirroredStrategy()
os.kill(os.getpid(), signal.SIGTERM)
print("still here")
"""


@pytest.mark.parametrize("monitor", ["", pytest.param("x", marks=pytest.mark.more)])
@pytest.mark.parametrize("words, code", [([], -15), pytest.param(["handled"], 7, marks=pytest.mark.more)])
def test_strategy_keeps_the_scripts_sigterm_handler(words, code, monitor):
    config = {"cluster": {"worker": [f"127.0.0.1:{unused_port()}"]}, "task": {"type": "worker", "index": 0}}
    variables = {"ENTRYPOINT_MARKS": monitor, "TF_CONFIG": json.dumps(config)}
    done = of_job(["-c", STRATEGY, *words], ON_PATH, **variables)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr


@pytest.mark.parametrize(
    "mesh, strategy",
    [
        (None, ("DataParallel", 3)),
        (4, ("DataParallel", 3)),
        (2, ("", 0)),  # DataParallel(devices=...) of jax.local_devices(): each process trains alone
        ("no distribution", ("", 0)),
    ],
)
def test_keras_3_distribution_over_all_jax_devices_is_a_strategy(monkeypatch, mesh, strategy):
    """Only a client of jax's coordinator counts: without it, each process trains alone."""
    spec = importlib.util.spec_from_file_location("looks_on", ON_PATH / "entrypoint_looks_on.py")
    looks_on = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(looks_on)

    class DataParallel:
        device_mesh = mesh and SimpleNamespace(devices=SimpleNamespace(size=mesh))

    made = None if mesh == "no distribution" else DataParallel()
    keras = SimpleNamespace(distribution=SimpleNamespace(distribution=lambda: made))
    state = SimpleNamespace(client=object(), num_processes=3)
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(device_count=lambda: 4))
    monkeypatch.setitem(sys.modules, "jax._src.distributed", SimpleNamespace(global_state=state))
    monkeypatch.setitem(sys.modules, "keras", keras)
    assert looks_on.strategy() == strategy
