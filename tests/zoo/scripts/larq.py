"""Train a binarized network of Larq, on all hosts by MultiWorkerMirrored."""

import larq as lq
import numpy as np
import tensorflow as tf
from shown import rank, survives, trains

BINARY = {"input_quantizer": "ste_sign", "kernel_quantizer": "ste_sign", "kernel_constraint": "weight_clip"}
strategy = tf.distribute.MultiWorkerMirroredStrategy()
draws = np.random.default_rng(rank())
labels = draws.integers(0, 2, 320)
images = (draws.normal(size=(320, 8, 8, 1)) + labels[:, None, None, None]).astype("float32")
data = tf.data.Dataset.from_tensor_slices((images, labels)).repeat().batch(16)
with strategy.scope():
    layers = [
        tf.keras.Input((8, 8, 1)),
        lq.layers.QuantConv2D(16, 3, kernel_quantizer="ste_sign", kernel_constraint="weight_clip"),
        tf.keras.layers.BatchNormalization(scale=False),
        tf.keras.layers.Flatten(),
        lq.layers.QuantDense(2, **BINARY),
        tf.keras.layers.BatchNormalization(scale=False),
        tf.keras.layers.Activation("softmax"),
    ]
    model = tf.keras.Sequential(layers)
    model.compile(tf.keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy")
trains(model, data, epochs=4, steps_per_epoch=8)
lq.models.summary(model)
survives(model, images[:4], "binary.h5", compile=True)
