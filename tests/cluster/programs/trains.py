"""Train one weight, for ever, with a line for each step: by Horovod, MultiWorkerMirrored or a parameter server.

--raises HOST: at step 10 that host raises. On SIGTERM all tasks leave after the same step, and the first one saves.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")

import tensorflow as tf

HOST = os.environ["SM_CURRENT_HOST"]
asked = []


def horovod():
    """Return (function for one step, whether this is the first task). A step returns whether any rank should stop."""
    import horovod.tensorflow as hvd

    hvd.init()
    weight = tf.Variable(0.0)

    def step():
        weight.assign_sub(0.02 * hvd.allreduce(weight - 3.0))
        return float(hvd.allreduce(tf.constant(float(bool(asked))), op=hvd.Sum)) > 0

    return step, weight, hvd.rank() == 0


def mirrored():
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        weight = tf.Variable(0.0)
        optimizer = tf.keras.optimizers.SGD(0.01)

    @tf.function
    def replica(stop):
        with tf.GradientTape() as tape:
            loss = (weight - 3.0) ** 2
        optimizer.apply_gradients([(tape.gradient(loss, weight), weight)])
        return stop

    @tf.function
    def everywhere(stop):
        return strategy.reduce("SUM", strategy.run(replica, args=(stop,)), axis=None)

    return lambda: float(everywhere(tf.constant(float(bool(asked))))) > 0, weight, task["index"] == 0


def parameter_server():
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    strategy = tf.distribute.experimental.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.experimental.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        weight = tf.Variable(0.0)

    @tf.function
    def on_a_worker():
        weight.assign_sub(0.02 * (weight - 3.0))

    def step():
        for _ in range(2):
            coordinator.schedule(on_a_worker)
        coordinator.join()
        return bool(asked)

    return step, weight, True


task = json.loads(os.environ.get("TF_CONFIG", '{"task": {"type": "none"}}'))["task"]
if "OMPI_COMM_WORLD_RANK" in os.environ:
    step, weight, first = horovod()
elif task["type"] == "chief":
    step, weight, first = parameter_server()
else:
    step, weight, first = mirrored()

# Only now: MultiWorkerMirroredStrategy takes SIGTERM for itself when it is made.
signal.signal(signal.SIGTERM, lambda *_: asked.append(f"{time.time():.3f}"))
number, over = 0, False
while not over:
    over = step()
    number += 1
    print(f"step {number}", flush=True)
    if number == 10 and sys.argv[1:] == ["--raises", HOST]:
        print(f"raises at {time.time():.3f}", flush=True)
        raise ValueError(f"row 17 of {HOST} has no label")
    time.sleep(0.05)
if first:
    with open(Path(os.environ["SM_MODEL_DIR"], "weight.json"), "w") as file:
        json.dump({"weight": float(weight.read_value()), "steps": number}, file)
print(f"heard SIGTERM at {asked[0] if asked else 'never'}, left after step {number} at {time.time():.3f}", flush=True)
