"""Train a deep and cross network of Keras RS by Keras 3's fit on JAX, on all hosts together."""

import keras
import keras_rs
import numpy as np
from shown import loads, model_dir, trains

from sagemaker_tf_data import initialize_jax

place = initialize_jax()
keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))
draws = np.random.default_rng(place.rank)
users, films = draws.integers(0, 20, 256), draws.integers(0, 10, 256)
ratings = ((users % 2) == (films % 2)).astype("float32")
inputs = [keras.Input((), dtype="int32"), keras.Input((), dtype="int32")]
embedded = [keras.layers.Embedding(size, 8)(each) for size, each in zip((20, 10), inputs, strict=True)]
first = keras.layers.Concatenate()(embedded)
crossed = keras_rs.layers.FeatureCross(projection_dim=8)(first, first)
dots = keras_rs.layers.DotInteraction()(embedded)
scores = keras.layers.Dense(1)(keras.layers.Concatenate()([crossed, dots]))
model = keras.Model(inputs, scores)
model.compile(keras.optimizers.Adam(0.02), keras.losses.BinaryCrossentropy(from_logits=True), jit_compile=True)
trains(model, [users, films], ratings, batch_size=32, epochs=4)
path, rows = str(model_dir() / "cross.keras"), [np.arange(8), np.arange(8)]  # the same in all processes
model.save(path)
loads(model(rows), keras.saving.load_model(path)(rows))
