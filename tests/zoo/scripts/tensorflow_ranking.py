"""Rank lists of ten documents by tensorflow-ranking's losses and metrics, on all hosts by MultiWorkerMirrored."""

import numpy as np
import tensorflow as tf
import tensorflow_ranking as tfr
from shown import rank, survives, trains

strategy = tf.distribute.MultiWorkerMirroredStrategy()
features = np.random.default_rng(rank()).normal(size=(320, 10, 4)).astype("float32")
relevance = np.clip(np.round(features.sum(-1) / 2), 0, 4)
data = tf.data.Dataset.from_tensor_slices((features, relevance)).repeat().batch(16)
with strategy.scope():
    inputs = tf.keras.Input((10, 4))
    hidden, mask = tf.keras.layers.Dense(16, "relu")(inputs), tf.keras.layers.Lambda(lambda x: x[..., 0] == x[..., 0])
    attention = tfr.keras.layers.DocumentInteractionAttention(num_heads=2, head_size=4, num_layers=1)
    context = attention((hidden, mask(inputs)))
    scores = tf.keras.layers.Dense(1)(tf.keras.layers.Concatenate()([hidden, context]))
    model = tf.keras.Model(inputs, tf.keras.layers.Reshape((10,))(scores))
    loss, metric = tfr.keras.losses.ApproxNDCGLoss(), tfr.keras.metrics.NDCGMetric(topn=5)
    model.compile(tf.keras.optimizers.Adam(0.01), loss, metrics=[metric])
trains(model, data, epochs=4, steps_per_epoch=8)
survives(model, features[:4], "1")
