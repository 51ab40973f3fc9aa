"""Run TensorFlow's parameter server tutorial: workers make a server and join it, for ever."""

import tensorflow as tf

resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if resolver.task_type == "worker":
    server = tf.distribute.Server(
        resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id, protocol="grpc"
    )
    print("joining", flush=True)
    server.join()

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
