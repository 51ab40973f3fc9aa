"""Train on all workers and draw the losses and the predictions with matplotlib, without a display."""

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
from shown import rank, survives, trains, wrote

strategy = tf.distribute.MultiWorkerMirroredStrategy()
x = np.random.default_rng(rank()).uniform(-3, 3, (512, 1)).astype("float32")
data = tf.data.Dataset.from_tensor_slices((x, np.sin(x))).repeat().batch(32)
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(32, "tanh"), tf.keras.layers.Dense(1)])
    model.compile(tf.keras.optimizers.Adam(0.02), "mse")
found = trains(model, data, epochs=6, steps_per_epoch=16)
again = survives(model, x[:8], "1", compile=True)
if rank() == 0:
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
    left.semilogy(found, marker="o")
    left.set(xlabel="epoch", ylabel="loss", title="training")
    right.scatter(x, again(x), s=3, label="predicted")
    right.plot(np.sort(x, axis=0), np.sin(np.sort(x, axis=0)), "r", label="sine")
    right.legend()
    drawn = Path(os.environ["SM_OUTPUT_DATA_DIR"])
    figure.savefig(drawn / "training.png", dpi=80)
    figure.savefig(drawn / "training.svg")
    wrote(drawn, "training.png")
    wrote(drawn, "training.svg")
