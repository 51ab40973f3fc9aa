"""Train a network on all workers whose patches and reductions are layers of einops."""

import numpy as np
import tensorflow as tf
from einops import rearrange
from einops.layers.keras import EinMix, Rearrange, Reduce, keras_custom_objects
from shown import rank, survives, trains

strategy = tf.distribute.MultiWorkerMirroredStrategy()
draws = np.random.default_rng(rank())
y = draws.integers(0, 2, 256)
patches = draws.normal(size=(256, 4, 4, 16))
patches[y == 1, 1, 2] += 2
x = rearrange(patches, "b h w (p q) -> b (h p) (w q) 1", p=4).astype("float32")
data = tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(16)
with strategy.scope():
    layers = [
        tf.keras.Input((16, 16, 1), batch_size=16),
        Rearrange("b (h p) (w q) c -> b (h w) (p q c)", p=4, q=4),
        EinMix("b t c -> b t d", weight_shape="c d", bias_shape="d", c=16, d=8),
        tf.keras.layers.ReLU(),
        Reduce("b t d -> b d", "max"),
        tf.keras.layers.Dense(1, "sigmoid"),
    ]
    model = tf.keras.Sequential(layers)
    model.compile(tf.keras.optimizers.Adam(0.02), "binary_crossentropy")
trains(model, data, epochs=5, steps_per_epoch=16)
survives(model, x[:16], compile=True, custom_objects=keras_custom_objects)
