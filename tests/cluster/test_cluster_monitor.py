"""Test the monitor in containers, with the image's TensorFlow and Horovod: ranks that train alone, hangs, records."""

import json
import zlib
from collections.abc import Callable

from containers import BUSY, Cluster

StartCluster = Callable[..., Cluster]

NOT_WRAPPED = """
import time
import horovod.tensorflow as hvd
import tensorflow as tf

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
"""


def run(cluster: StartCluster, script: str, mode: str, **environment: str) -> Cluster:
    """Run a script of this file on two hosts."""
    return cluster(code=script, hosts=2, mode=mode, environment={**BUSY, **environment})


def test_ranks_with_an_unwrapped_tape_are_reported_as_training_alone(cluster: StartCluster) -> None:
    """local/test_monitor_local.py has jobs that exchange gradients, and other ways to train alone."""
    with run(cluster, NOT_WRAPPED, "mpi") as job:
        # A verdict takes as many steps, however slow they are.
        job.sees("trains alone (Horovod was asked to reduce 1 n", "algo-1", within=600)
        assert "distributed: yes" not in job.log("algo-1")


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


def test_hang_report_of_uneven_batches_names_the_missing_rank(cluster: StartCluster) -> None:
    """Rank 0 has no batch and the other rank waits in a collective. Horovod's thread keeps CPUs busy on every host.

    The coordinator has records of all hosts, with samples by its control group, and the report made of them.
    """
    with run(cluster, UNEVEN, "mpi", ENTRYPOINT_HANG_AFTER="15", ENTRYPOINT_HANG_ACTION="fail") as job:
        first, _ = job.all_end(72, within=600)
    failure = str(first.failure)
    assert "no progress in any process for 15 s: rank 0 on algo-1 is in train.py:6 read_more_data (sleeps)" in failure
    assert "train.py:10 train" in failure
    assert "Horovod reports missing 0: [HorovodAllreduce" in failure
    assert "0: [HorovodAllreduce" in first.log  # Horovod's warning stays
    data = first.ml / "output/data"
    for host in ("algo-1", "algo-2"):
        text = zlib.decompressobj(31).decompress((data / f"record/{host}.jsonl.gz").read_bytes())
        kinds = {json.loads(line)[0] for line in text.splitlines()}
        assert {"host", "described", "decided", "process", "sample", "outcome"} <= kinds
    assert (data / "report.html").exists() or "no report.html" in first.log
