"""Run a step of DeepFM on two parameter servers and a worker in this process, with a GPU feigned to Keras.

Prints the results as JSON: with the example's own optimizer, and with one that Keras compiles by XLA.
"""

import json
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
sys.path.insert(0, sys.argv[1])

import tensorflow as tf
from keras.src.optimizers import optimizer as of_keras

import model
import parameter_servers
import settings

pretended = [tf.config.PhysicalDevice("/physical_device:GPU:0", "GPU")]
of_keras.tf.config.list_physical_devices = lambda kind=None: pretended if kind == "GPU" else []

ports = list(map(int, sys.argv[2:6]))
cluster = {
    "chief": [f"localhost:{ports[0]}"],
    "worker": [f"localhost:{ports[1]}"],
    "ps": [f"localhost:{port}" for port in ports[2:]],
}
others = [("worker", 0), ("ps", 0), ("ps", 1)]
servers = [tf.distribute.Server(cluster, job_name=job, task_index=index, protocol="grpc") for job, index in others]
os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": "chief", "index": 0}})
args = settings.parse_args(["--feature-size", "50", "--field-size", "3", "--embedding-size", "2", "--deep-layers", "4"])
strategy = parameter_servers.parameter_servers()
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)


def step_with(compiled):
    with strategy.scope():
        made = model.compiled(args)
        if compiled:
            made.compile(tf.keras.optimizers.Adagrad(args.learning_rate), "binary_crossentropy")
            made.optimizer.build(made.trainable_variables)

    @tf.function
    def step():
        features = {"ids": tf.constant([[1, 2, 3], [4, 5, 6]], tf.int64), "values": tf.ones([2, 3])}
        return strategy.run(parameter_servers.step, args=(made, (features, tf.constant([0.0, 1.0]))))

    try:
        return made.optimizer.jit_compile, float(coordinator.schedule(step).fetch())
    except tf.errors.InvalidArgumentError as error:
        return made.optimizer.jit_compile, str(error)


print(json.dumps({"example": step_with(False), "keras": step_with(True)}), flush=True)
os._exit(0)  # TensorFlow's servers know no end
