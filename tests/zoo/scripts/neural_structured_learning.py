"""Train against adversarial neighbours by neural-structured-learning, on all hosts by MultiWorkerMirrored."""

import neural_structured_learning as nsl
import numpy as np
import tensorflow as tf
from shown import agree, falls, rank, survives

strategy = tf.distribute.MultiWorkerMirroredStrategy()
draws = np.random.default_rng(rank())
labels = draws.integers(0, 2, 320)
x = (draws.normal(size=(320, 8)) + labels[:, None]).astype("float32")
data = tf.data.Dataset.from_tensor_slices({"x": x, "label": labels}).repeat().batch(16)
with strategy.scope():
    layers = [tf.keras.Input((8,), name="x"), tf.keras.layers.Dense(16, "relu"), tf.keras.layers.Dense(2, "softmax")]
    base = tf.keras.Sequential(layers)
    config = nsl.configs.make_adv_reg_config(multiplier=0.2, adv_step_size=0.05)
    model = nsl.keras.AdversarialRegularization(base, label_keys=["label"], adv_config=config)
    model.compile(tf.keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy")
found = model.fit(data, epochs=4, steps_per_epoch=8, verbose=0).history["loss"]
falls(found[0], found[-1])
agree(base.get_weights())
survives(base, x[:4], "base.h5", compile=True)
