"""Train by steps; on one host, hang in one of them.

Under mpirun the processes use Horovod, with TF_CONFIG MultiWorkerMirroredStrategy; otherwise there is one process.
"""

from marks import ends, mark

mark("first")
import argparse  # noqa: E402
import os  # noqa: E402
import time  # noqa: E402
from pathlib import Path  # noqa: E402

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import numpy  # noqa: E402

parser = argparse.ArgumentParser()
parser.add_argument("--hangs-in", type=int)
parser.add_argument("--on", help="the host of the process that does")
arguments, _ = parser.parse_known_args()


def exchange(gradient):
    return gradient


if "OMPI_COMM_WORLD_RANK" in os.environ or "HOROVOD_RANK" in os.environ:
    import horovod.tensorflow as hvd
    import tensorflow as tf

    hvd.init()

    def exchange(gradient):
        return hvd.allreduce(tf.constant(gradient), name="gradient").numpy()
elif "TF_CONFIG" in os.environ:
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()

    @tf.function
    def reduced(gradient):
        def of_replica(value):
            here = tf.identity(value)  # on the replica's device
            return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, here)

        return strategy.run(of_replica, (gradient,))

    def exchange(gradient):
        return reduced(tf.constant(gradient)).numpy()


hangs = Path("/bench/host").read_text() == arguments.on
for step in range(1, 201):
    if hangs and step == arguments.hangs_in:
        mark("hangs")
        time.sleep(1e6)
    exchange(numpy.full(1000, 0.1, "float32"))
    time.sleep(0.01)
    if step == 1:
        mark("trains")
        print("the first step", flush=True)
ends()
