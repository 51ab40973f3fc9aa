"""Train by Horovod and explain the predictions with SHAP: the feature that decides gets the most of them."""

import numpy as np
import shap
import tensorflow as tf
from shown import for_horovod, rank, survives, trains

x = np.random.default_rng(rank()).normal(size=(512, 4)).astype("float32")
y = x @ np.array([[0.1], [5], [0.1], [1]], "float32")
layers = [tf.keras.Input((4,)), tf.keras.layers.Dense(16, "relu"), tf.keras.layers.Dense(1)]
model, callbacks = for_horovod(*layers, rate=0.02)
trains(model, x, y, epochs=8, callbacks=callbacks)
again = survives(model, x[:8])
if rank() == 0:
    by_gradients = shap.GradientExplainer(again, x[:64]).shap_values(x[64:72])
    by_samples = shap.Explainer(lambda rows: again.predict(rows, verbose=0)[:, 0], x[:64])(x[64:72]).values
    for values in (np.reshape(by_gradients, (8, 4)), by_samples):
        assert np.abs(values).mean(0).argmax() == 1, values
