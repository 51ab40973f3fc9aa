"""Train a classifier of KerasCV on images that its layers augment."""

import keras_cv
import numpy as np
import tensorflow as tf
from shown import rank, survives, trains

strategy = tf.distribute.MultiWorkerMirroredStrategy()
draws = np.random.default_rng(rank())
labels = draws.integers(0, 2, 160)
images = (draws.uniform(0, 100, (160, 32, 32, 3)) + 100 * labels[:, None, None, None]).astype("float32")
augment = keras_cv.layers.Augmenter([keras_cv.layers.RandomFlip(), keras_cv.layers.RandomHue(0.1, (0, 255))])
data = tf.data.Dataset.from_tensor_slices({"images": images, "labels": tf.one_hot(labels, 2)}).repeat().batch(16)
data = data.map(augment).map(lambda batch: (batch["images"], batch["labels"]))
with strategy.scope():
    stack = {"stackwise_filters": [16, 32], "stackwise_blocks": [2, 2], "stackwise_strides": [1, 2]}
    backbone = keras_cv.models.ResNetV2Backbone(**stack, include_rescaling=True, input_shape=(32, 32, 3))
    model = keras_cv.models.ImageClassifier(backbone=backbone, num_classes=2)
    model.compile(tf.keras.optimizers.Adam(0.003), "categorical_crossentropy")
trains(model, data, epochs=4, steps_per_epoch=8)
survives(model, images[:4], compile=True)
