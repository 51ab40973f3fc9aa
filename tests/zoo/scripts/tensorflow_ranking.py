"""Rank lists of ten documents by tensorflow-ranking's losses and metrics, on all hosts by MultiWorkerMirrored."""

import numpy as np
import tensorflow as tf
import tensorflow_ranking as tfr
from shown import agree, falls, loads, model_dir, rank

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
found = model.fit(data, epochs=4, steps_per_epoch=8, verbose=0).history
falls(found["loss"][0], found["loss"][-1])
agree(model.get_weights())
path = str(model_dir() / "ranking.keras")
model.save(path)
loaded = tf.keras.models.load_model(path, compile=False)
loads(model(features[:4], training=False), loaded(features[:4], training=False))
