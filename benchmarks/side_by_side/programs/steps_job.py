"""Train by steps, with a checkpoint after every tenth. Once, on one host, crash after a step or hang in one.

Under mpirun the processes exchange by Horovod, with TF_CONFIG by MultiWorkerMirroredStrategy. Without, there is one.
"""

from marks import ends, mark

mark("first")
import argparse  # noqa: E402
import os  # noqa: E402
import signal  # noqa: E402
import time  # noqa: E402
from pathlib import Path  # noqa: E402

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import numpy  # noqa: E402

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int)
parser.add_argument("--crashes-after", type=int, default=-1)
parser.add_argument("--hangs-in", type=int, default=-1)
parser.add_argument("--on", help="the host of the process that does")
arguments, _ = parser.parse_known_args()
checkpoint = Path("/shared/checkpoint.npy")  # the step, and behind it the weights
is_first = True


def exchange(gradient):
    return gradient


if "OMPI_COMM_WORLD_RANK" in os.environ or "HOROVOD_RANK" in os.environ:
    import horovod.tensorflow as hvd
    import tensorflow as tf

    hvd.init()
    is_first = hvd.rank() == 0

    def exchange(gradient):
        return hvd.allreduce(tf.constant(gradient), name="gradient").numpy()
elif "TF_CONFIG" in os.environ:
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    is_first = strategy.cluster_resolver.task_id == 0

    @tf.function
    def reduced(gradient):
        def of_replica(value):
            here = tf.identity(value)  # on the replica's device
            return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, here)

        return strategy.run(of_replica, (gradient,))

    def exchange(gradient):
        return reduced(tf.constant(gradient)).numpy()


begun, weights = 0, numpy.zeros(1000, "float32")
if checkpoint.exists():
    begun, weights = (lambda saved: (int(saved[0]), saved[1:]))(numpy.load(checkpoint))
falls = begun == 0 and Path("/bench/host").read_text() == arguments.on
for step in range(begun + 1, arguments.steps + 1):
    if falls and step == arguments.crashes_after + 1:
        mark("crashes")
        os.kill(os.getpid(), signal.SIGKILL)
    gradient = numpy.full(weights.shape, 0.1, "float32")
    if falls and step == arguments.hangs_in:
        mark("hangs")
        time.sleep(1e6)
    weights += exchange(gradient)
    time.sleep(0.01)
    if step == begun + 1:
        mark("trains")
        print(f"step {step} is the first of this attempt", flush=True)
    if is_first and step % 10 == 0:
        numpy.save("/shared/new.npy", numpy.concatenate([[step], weights]))
        os.replace("/shared/new.npy", checkpoint)  # noqa: PTH105
mark("steps", arguments.steps - begun)
ends()
