"""A model of one variable, trained with ParameterServerStrategy and a ClusterCoordinator."""

import tensorflow as tf

resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
strategy = tf.distribute.experimental.ParameterServerStrategy(resolver)
coordinator = tf.distribute.experimental.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    weight = tf.Variable(1.0)


@tf.function
def step():
    def replica():
        weight.assign_sub(0.1 * 2 * weight)
        return weight.read_value()

    return strategy.run(replica)


for _ in range(10):
    coordinator.schedule(step)
coordinator.join()
print("trained, loss", float(weight.read_value()) ** 2, flush=True)
