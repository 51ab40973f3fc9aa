"""Train by Horovod with `fit` on TensorFlow's Keras, ranks starting with different weights; write the result."""

import json
import os
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import horovod.tensorflow as hvd_tf
import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf

hvd.init()
rank = hvd.rank()
random = np.random.default_rng(rank)
x = random.normal(size=(64, 3)).astype("float32")
y = x @ np.array([[1.0], [2.0], [3.0]], "float32")
told = {"keras": tf.keras.__version__ if hasattr(tf.keras, "__version__") else "2"}


def model(*layers):
    made = tf.keras.Sequential([tf.keras.Input((3,)), *layers, tf.keras.layers.Dense(1)])
    made.set_weights([weight + rank for weight in made.get_weights()])  # to be broadcast
    return made


def train(made, optimizer, data, *callbacks, epochs=3):
    made.compile(optimizer, "mse", metrics=["mae"])
    first = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    callbacks = [first, hvd.callbacks.MetricAverageCallback(), *callbacks]
    return made.fit(*data, batch_size=16, epochs=epochs, shuffle=False, callbacks=callbacks, verbose=0)


def same(values):
    """Return whether all ranks have the same values."""
    everywhere = hvd_tf.allgather_object([np.asarray(value).tolist() for value in values])
    return all(each == everywhere[0] for each in everywhere)


made = model(tf.keras.layers.Dropout(0.1))
optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.Adam(0.1 * hvd.size()))
history = train(made, optimizer, (x, y), hvd.callbacks.LearningRateWarmupCallback(0.1 * hvd.size(), warmup_epochs=2))
told |= {"weights": same(made.get_weights()), "metrics": same(history.history["loss"] + history.history["mae"])}
told["rate"] = round(float(history.history["lr"][-1]), 4)

# A .keras file of Keras 2 names Horovod's module for the optimizer's class, where there is none.
saved = f"/tmp/model-{rank}.{'keras' if told['keras'].startswith('3.') else 'h5'}"
made.save(saved)
plain, again = tf.keras.models.load_model(saved), hvd.load_model(saved)
told["plain"] = [type(plain.optimizer).__module__.partition(".")[0], int(np.asarray(plain.optimizer.iterations))]
told["again"] = [int(np.asarray(again.optimizer.iterations))]
again.fit(x, y, batch_size=16, epochs=1, verbose=0)
told["again"] += [int(np.asarray(again.optimizer.iterations)), same(again.get_weights())]

normal = model(hvd_tf.SyncBatchNormalization())
train(normal, hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.01)), (x, y))
told["normal"] = same(normal.get_weights())  # its statistics, too

if told["keras"].startswith("3."):
    tf.keras.mixed_precision.set_global_policy("mixed_float16")
    steep = y.copy()
    if rank == 1:
        steep[:16] = 3e38  # this rank's gradients of the first batch are infinite
    half = model()
    train(half, hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.01)), (x, steep))
    told["half"] = same(half.get_weights()) and bool(np.isfinite(half.get_weights()[0]).all())
    try:
        hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.01), backward_passes_per_step=2)
    except ValueError as error:
        told["refused"] = str(error)

with open(Path(os.environ["SM_OUTPUT_DATA_DIR"], f"rank-{rank}.json"), "w") as file:
    json.dump(told, file)
