"""Add up 1 from each process, in the mode that the process finds."""

import json
import os

import tensorflow as tf

task = json.loads(os.environ.get("TF_CONFIG", '{"task": {"type": "none"}}'))["task"]
if "JAX_PROCESS_ID" in os.environ:
    from sagemaker_tf_data import initialize_jax

    initialize_jax()
    from jax.experimental.multihost_utils import process_allgather

    total = process_allgather(1).sum()
elif "OMPI_COMM_WORLD_RANK" in os.environ:
    import horovod.tensorflow as hvd

    hvd.init()
    total = hvd.allreduce(tf.ones([]), op=hvd.Sum)
elif task["type"] == "chief":
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        weight = tf.Variable(0.0)

    @tf.function
    def add():
        weight.assign_add(1.0)

    for _ in range(2):
        coordinator.schedule(add)
    coordinator.join()
    total = weight.read_value()
else:
    strategy = tf.distribute.MultiWorkerMirroredStrategy()

    @tf.function
    def one():
        return tf.ones([])

    @tf.function
    def everywhere():
        return strategy.reduce("SUM", strategy.run(one), axis=None)

    total = everywhere()
print("together:", int(total), flush=True)
