"""An all-reduce over MultiWorkerMirroredStrategy."""

import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()


@tf.function
def step():
    return strategy.reduce("SUM", strategy.run(lambda: tf.constant(1.0)), axis=None)


print(f"trained on {int(step())} replicas", flush=True)
