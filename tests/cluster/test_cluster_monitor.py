"""Test the monitor in containers, with the image's TensorFlow and Horovod: hosts that train alone, and its records.

Each job goes on until the line that is waited for was said, and is taken down then.
"""

import json
import zlib
from collections.abc import Callable

import pytest
from containers import BUSY, Cluster

StartCluster = Callable[..., Cluster]

MODEL = """
import os, sys, time
import numpy as np
import tensorflow as tf

def model(optimizer):
    made = tf.keras.Sequential([tf.keras.layers.Dense(256, input_shape=(64,)), tf.keras.layers.Dense(1)])
    made.compile(optimizer, "mse")
    return made

class Say(tf.keras.callbacks.Callback):
    step = 0
    def on_train_batch_end(self, batch, logs=None):
        Say.step += 1
        print(f"step={Say.step} loss={logs['loss']:.4f}", flush=True)
        time.sleep(0.1)

def rows(count=4):
    return tf.data.Dataset.from_tensors((np.ones((count, 64), "float32"), np.ones((count, 1), "float32"))).repeat(6000)
"""
FIT = {
    "mwms": """
strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    made = model("sgd")
data = rows(4)
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
made.fit(data.with_options(options), epochs=1, steps_per_epoch=6000, verbose=0, callbacks=[Say()])
""",
    "mpi": """
import horovod.tensorflow.keras as hvd
hvd.init()
made = model(hvd.DistributedOptimizer(tf.keras.optimizers.legacy.SGD(0.01)))
made.fit(rows(), steps_per_epoch=6000, epochs=1, verbose=0,
         callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0), Say()])
""",
    "the tape is not wrapped": """
import horovod.tensorflow as hvd
hvd.init()
weights, sgd = tf.Variable(tf.ones([1000, 100])), tf.keras.optimizers.legacy.SGD(0.01)
hvd.broadcast_variables([weights], root_rank=0)

@tf.function
def train():
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(weights * weights)
    sgd.apply_gradients(zip(tape.gradient(loss, [weights]), [weights]))
    return loss

for step in range(6000):
    print(f"step={step} loss={float(hvd.allreduce(train(), name='loss')):.4f}", flush=True)
    time.sleep(0.1)
""",
    "without a strategy": "model('sgd').fit(rows(), steps_per_epoch=6000, epochs=1, verbose=0, callbacks=[Say()])\n",
    "TF_CONFIG overwritten": """
import json
alone = {"cluster": {"worker": ["localhost:2222"]}, "task": {"type": "worker", "index": 0}}
os.environ["TF_CONFIG"] = json.dumps(alone)
strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    made = model("sgd")
made.fit(rows(), steps_per_epoch=6000, epochs=1, verbose=0, callbacks=[Say()])
""",
    "each its own world": """
from mpi4py import MPI
for name in [name for name in os.environ if name.startswith(("OMPI_", "PMIX_", "PRTE_"))]:
    del os.environ[name]
os.environ["HOROVOD_RANK"] = "0"
print("I am rank", os.environ["HOROVOD_RANK"], flush=True)
model("sgd").fit(rows(), steps_per_epoch=6000, epochs=1, verbose=0, callbacks=[Say()])
""",
}
CASES = [
    ("mwms", "mwms", "distributed: yes: 2 hosts exchange"),
    ("mpi", "mpi", "distributed: yes: 2 hosts exchange"),
    ("mwms", "without a strategy", "distributed: NO:"),
    ("mwms", "TF_CONFIG overwritten", "distributed: NO:"),
    ("mpi", "the tape is not wrapped", "trains alone (Horovod was asked to reduce 1 n"),
    ("mpi", "without a strategy", "distributed: NO:"),  # Horovod without init
    ("mpi", "each its own world", "distributed: NO:"),
]
MORE = {
    ("mwms", "without a strategy"), ("mwms", "TF_CONFIG overwritten"), ("mpi", "each its own world"), ("mpi", "mpi"),
    ("mpi", "without a strategy"), ("mwms", "mwms"),  # local/test_monitor_local.py has a job that exchanges gradients
}  # fmt: skip


@pytest.mark.parametrize(
    "mode, script, said",
    [
        pytest.param(*case, marks=[pytest.mark.more] if case[:2] in MORE else [], id=f"{case[0]}, {case[1]}")
        for case in CASES
    ],
)
def test_whether_the_hosts_train_together_is_said(cluster: StartCluster, mode: str, script: str, said: str) -> None:
    with cluster(
        program="tells.py", hosts=2, mode=mode, environment=BUSY, hyperparameters={"sagemaker_program": "train.py"},
        files={"train.py": MODEL + FIT[script]},
    ) as job:  # fmt: skip
        job.sees(said, "algo-1", within=600)  # a verdict takes as many steps, however slow they are
        other = "NO" if "yes" in said else "yes"
        assert f"distributed: {other}" not in job.log("algo-1")


UNEVEN = """
import time
import horovod.tensorflow as hvd, tensorflow as tf

def read_more_data():
    time.sleep(3000)

def train():
    for step in range(10 + 10 * hvd.rank()):
        hvd.allreduce(tf.ones([1000]), name="gradient")
        print(f"step={step}", flush=True)

hvd.init()
train()
read_more_data()
"""


@pytest.mark.parametrize("hosts", [2, pytest.param(3, marks=pytest.mark.more)])
def test_ranks_with_uneven_batches_are_a_hang_that_names_who_is_missing(cluster: StartCluster, hosts: int) -> None:
    """Rank 0 is away and the others are in a collective; Horovod's own thread keeps CPUs busy on every host."""
    with cluster(
        program="tells.py", hosts=hosts, mode="mpi",
        environment={**BUSY, "ENTRYPOINT_HANG_AFTER": "15", "ENTRYPOINT_HANG_ACTION": "fail"},
        hyperparameters={"sagemaker_program": "train.py"}, files={"train.py": UNEVEN},
    ) as job:  # fmt: skip
        endings = job.wait(within=600)
    assert {ending.exit_code for ending in endings.values()} == {72}
    failure = endings["algo-1"].failure
    assert "no progress in any process for 15 s: rank 0 on algo-1 is in train.py:6 read_more_data (sleeps)" in failure
    assert "train.py:10 train" in failure
    assert "Horovod reports missing 0: [HorovodAllreduce" in failure
    assert "0: [HorovodAllreduce" in endings["algo-1"].log  # Horovod's warning stays


BUSY_IN_SILENCE = """
import time
import horovod.tensorflow as hvd, tensorflow as tf

def compute(seconds):
    a = tf.random.normal([256, 256])
    until = time.time() + seconds
    while time.time() < until:
        a = tf.tanh(a @ a)

hvd.init()
hvd.allreduce(tf.ones([1000]), name="gradient")
time.sleep(6)
for step in range(30):
    time.sleep(0.5)
    print(f"step={step}", flush=True)
compute(24)
if hvd.rank() == 0:
    compute(30)
hvd.allreduce(tf.ones([1000]), name="gradient")
print("ended well", flush=True)
"""


@pytest.mark.more  # unit/observe/monitor/test_monitor_threads.py has what was counted wrongly
def test_silent_work_of_all_and_of_one_rank_after_a_training_is_no_hang(cluster: StartCluster) -> None:
    """CPU time of Horovod's thread before a silence does not count for it: such a job was ended with 72."""
    with cluster(
        program="tells.py", hosts=2, mode="mpi",
        environment={**BUSY, "ENTRYPOINT_HANG_AFTER": "12", "ENTRYPOINT_HANG_ACTION": "fail"},
        hyperparameters={"sagemaker_program": "train.py"}, files={"train.py": BUSY_IN_SILENCE},
    ) as job:  # fmt: skip
        endings = job.wait(within=600)
    assert [ending.exit_code for ending in endings.values()] == [0, 0], endings["algo-1"].log
    assert "no progress" not in endings["algo-1"].log


STEPS = """
import time
for step in range(60):
    print(f"step={step}", flush=True)
    time.sleep(0.1)
"""


def test_each_host_leaves_what_report_and_replay_need(cluster: StartCluster) -> None:
    """On the coordinator: records of all hosts with samples by its control group, and the report made of them."""
    with cluster(
        program="tells.py", hosts=2, mode="single", environment=BUSY,
        hyperparameters={"sagemaker_program": "train.py"}, files={"train.py": STEPS},
    ) as job:  # fmt: skip
        endings = job.wait()
    assert [ending.exit_code for ending in endings.values()] == [0, 0]
    data = endings["algo-1"].ml / "output/data"
    for host in ("algo-1", "algo-2"):
        text = zlib.decompressobj(31).decompress((data / f"record/{host}.jsonl.gz").read_bytes())
        kinds = {json.loads(line)[0] for line in text.splitlines()}
        assert {"host", "described", "decided", "process", "sample", "outcome"} <= kinds
    assert (data / "report.html").exists() or "no report.html" in endings["algo-1"].log
