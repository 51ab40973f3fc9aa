"""Train on all workers while the first logs to Weights & Biases, offline, by the callback for Keras."""

import os

import tensorflow as tf
import wandb
from shown import rank, survives, trains, weighted_sums, wrote
from wandb.integration.keras import WandbMetricsLogger

strategy = tf.distribute.MultiWorkerMirroredStrategy()
x, y = weighted_sums()
data = tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(16)
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.Input((8,)), tf.keras.layers.Dense(16, "relu"), tf.keras.layers.Dense(1)])
    model.compile("adam", "mse")
folder = os.environ["SM_OUTPUT_DATA_DIR"]
if rank() == 0:
    wandb.init(project="zoo", mode="offline", dir=folder, config={"units": 16})
logs = [WandbMetricsLogger(log_freq=10)] if rank() == 0 else []
found = trains(model, data, epochs=5, steps_per_epoch=20, callbacks=logs)
if rank() == 0:
    assert round(wandb.run.summary["epoch/loss"], 4) == round(found[-1], 4)
    wandb.finish()
    wrote(folder, "*.wandb")
survives(model, x[:8], "1", compile=True)
