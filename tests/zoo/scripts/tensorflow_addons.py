"""Train with layers, a loss, a metric and an optimizer of tensorflow-addons, on all hosts by MultiWorkerMirrored."""

import numpy as np
import tensorflow as tf
import tensorflow_addons as tfa
from shown import agree, falls, loads, model_dir, rank

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
found = model.fit(data, epochs=4, steps_per_epoch=8, verbose=0).history
falls(found["loss"][0], found["loss"][-1])
agree(model.get_weights())
path = str(model_dir() / "model.h5")
model.save(path)
loads(model(x[:4]), tf.keras.models.load_model(path)(x[:4]))
