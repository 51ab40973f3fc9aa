"""Exchange among the ranks that mpirun has started, by Horovod; or do without it in one process."""

import os

import tensorflow as tf

from sagemaker_tf_data import pin_gpu

hvd = None
if "OMPI_COMM_WORLD_SIZE" in os.environ:
    import horovod.tensorflow as hvd


def start():
    """Meet the other ranks, and take a GPU of one's own where there are any."""
    if hvd is None:
        return
    hvd.init()
    pin_gpu()


def rank():
    return hvd.rank() if hvd else 0


def size():
    return hvd.size() if hvd else 1


def averaging(tape, compression="none"):
    """Wrap a GradientTape so that its gradients are the mean of all ranks'."""
    if size() == 1:
        return tape
    return hvd.DistributedGradientTape(tape, compression=getattr(hvd.Compression, compression))


def broadcast(variables):
    """Give all ranks the values of rank 0."""
    if size() > 1:
        hvd.broadcast_variables(variables, root_rank=0)


def mean(values, name):
    """Return the mean over all ranks of a tensor that each has."""
    return hvd.allreduce(values, name=name) if size() > 1 else values


def any_of(flag, name):
    """Return whether `flag` is true on any rank. Every rank has to ask."""
    return bool(hvd.allreduce(tf.constant(float(flag)), op=hvd.Sum, name=name) > 0) if size() > 1 else flag


def gather(found):
    """Return the list of what all ranks have found, in the order of the ranks; anything that can be pickled."""
    return hvd.allgather_object(found) if size() > 1 else [found]
