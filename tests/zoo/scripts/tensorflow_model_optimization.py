"""Prune half of a network's weights while it trains on all hosts by MultiWorkerMirrored, then strip and save it."""

import numpy as np
import tensorflow as tf
import tensorflow_model_optimization as tfmot
from shown import agree, falls, rank, survives

strategy = tf.distribute.MultiWorkerMirroredStrategy()
draws = np.random.default_rng(rank())
x = draws.normal(size=(320, 8)).astype("float32")
data = tf.data.Dataset.from_tensor_slices((x, x.sum(1))).repeat().batch(16)
with strategy.scope():
    layers = [tf.keras.Input((8,)), tf.keras.layers.Dense(32, "relu"), tf.keras.layers.Dense(1)]
    schedule = tfmot.sparsity.keras.PolynomialDecay(0.0, 0.5, begin_step=8, end_step=24, frequency=4)
    model = tfmot.sparsity.keras.prune_low_magnitude(tf.keras.Sequential(layers), schedule)
    model.compile(tf.keras.optimizers.Adam(0.01), "mse")
step = tfmot.sparsity.keras.UpdatePruningStep()
found = model.fit(data, epochs=4, steps_per_epoch=8, callbacks=[step], verbose=0).history["loss"]
falls(found[0], found[-1])
stripped = tfmot.sparsity.keras.strip_pruning(model)
agree(stripped.get_weights())
zeros = np.mean(stripped.get_weights()[0] == 0)
assert 0.4 < zeros < 0.6, f"{zeros:.0%} of the weights are pruned"
survives(stripped, x[:4], "pruned.h5", compile=True)
