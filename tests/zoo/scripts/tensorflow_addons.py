"""Train with layers, a loss, a metric and an optimizer of tensorflow-addons, on all hosts by MultiWorkerMirrored."""

import numpy as np
import tensorflow as tf
import tensorflow_addons as tfa
from shown import rank, survives, trains

strategy = tf.distribute.MultiWorkerMirroredStrategy()
draws = np.random.default_rng(rank())
labels = draws.integers(0, 3, 320)
x = (draws.normal(size=(320, 8, 8, 4)) + labels[:, None, None, None]).astype("float32")
data = tf.data.Dataset.from_tensor_slices((x, tf.one_hot(labels, 3))).repeat().batch(16)
with strategy.scope():
    layers = [
        tf.keras.Input((8, 8, 4)),
        tfa.layers.WeightNormalization(tf.keras.layers.Conv2D(8, 3), data_init=False),
        tfa.layers.InstanceNormalization(),
        tf.keras.layers.Activation(tfa.activations.mish),
        tfa.layers.AdaptiveAveragePooling2D((2, 2)),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(3, "sigmoid"),
    ]
    model = tf.keras.Sequential(layers)
    loss, metric = tfa.losses.SigmoidFocalCrossEntropy(), tfa.metrics.F1Score(3, average="macro")
    model.compile(tfa.optimizers.LAMB(0.01), loss, metrics=[metric])
trains(model, data, epochs=4, steps_per_epoch=8)
survives(model, x[:4], "model.h5", compile=True)
