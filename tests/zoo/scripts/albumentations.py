"""Train on all workers with images that albumentations augments inside tf.data."""

import albumentations as A  # as its users call it
import numpy as np
import tensorflow as tf
from shown import rank, survives, trains

strategy = tf.distribute.MultiWorkerMirroredStrategy()
draws = np.random.default_rng(rank())
labels = draws.integers(0, 2, 256)
images = draws.integers(0, 120, (256, 24, 24, 3)).astype(np.uint8)
images[labels == 1] += 90
shapes = [A.HorizontalFlip(p=0.5), A.Affine(rotate=(-20, 20)), A.RandomCrop(20, 20)]
augment = A.Compose([*shapes, A.RandomBrightnessContrast((-0.1, 0.1), (-0.1, 0.1)), A.Normalize()], seed=rank())


def augmented(image, label):
    made = tf.numpy_function(lambda each: augment(image=each)["image"].astype("float32"), [image], tf.float32)
    return tf.ensure_shape(made, [20, 20, 3]), label


data = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(256).repeat().map(augmented).batch(16)
with strategy.scope():
    layers = [tf.keras.layers.Conv2D(8, 3, activation="relu"), tf.keras.layers.GlobalAveragePooling2D()]
    model = tf.keras.Sequential([tf.keras.Input((20, 20, 3)), *layers, tf.keras.layers.Dense(1, "sigmoid")])
    model.compile(tf.keras.optimizers.Adam(0.01), "binary_crossentropy")
trains(model, data, epochs=4, steps_per_epoch=16)
survives(model, next(iter(data))[0], "1", compile=True)
