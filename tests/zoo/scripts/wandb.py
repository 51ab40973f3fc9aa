"""Train on all workers while the first logs to Weights & Biases, offline, by the callback for Keras."""

import os

import numpy as np
import tensorflow as tf
import wandb
from shown import agree, falls, loads, model_dir, rank, wrote
from wandb.integration.keras import WandbMetricsLogger

strategy = tf.distribute.MultiWorkerMirroredStrategy()
x = np.random.default_rng(rank()).normal(size=(512, 8)).astype("float32")
y = x @ np.arange(8, dtype="float32")[:, None]
data = tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(16)
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.Input((8,)), tf.keras.layers.Dense(16, "relu"), tf.keras.layers.Dense(1)])
    model.compile("adam", "mse")
folder = os.environ["SM_OUTPUT_DATA_DIR"]
if rank() == 0:
    wandb.init(project="zoo", mode="offline", dir=folder, config={"units": 16})
logs = [WandbMetricsLogger(log_freq=10)] if rank() == 0 else []
found = model.fit(data, epochs=5, steps_per_epoch=20, verbose=0, callbacks=logs).history["loss"]
if rank() == 0:
    assert round(wandb.run.summary["epoch/loss"], 4) == round(found[-1], 4)
    wandb.finish()
    wrote(folder, "*.wandb")
falls(found[0], found[-1])
agree(model.get_weights())
kept = model_dir() / "1"
model.save(kept)
loads(model(x[:8]), tf.keras.models.load_model(kept)(x[:8]))
