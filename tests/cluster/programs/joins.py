"""Add up 1 from each process, in mode jax or mwms."""

import os

if "JAX_PROCESS_ID" in os.environ:
    from sagemaker_tf_data import initialize_jax

    initialize_jax()
    from jax.experimental.multihost_utils import process_allgather

    total = process_allgather(1).sum()
else:
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()

    @tf.function
    def one():
        return tf.ones([])

    @tf.function
    def everywhere():
        return strategy.reduce("SUM", strategy.run(one), axis=None)

    total = everywhere()
print("together:", int(total), flush=True)
