"""Train by Horovod on what scikit-image measures in pictures: histograms of gradients, regions and textures."""

import numpy as np
import tensorflow as tf
from shown import for_horovod, rank, survives, trains
from skimage import draw, feature, filters, measure, transform

draws = np.random.default_rng(rank())


def features(is_ring):
    image = draws.uniform(0, 0.3, (40, 40))
    at, size = draws.integers(14, 26, 2), int(draws.integers(8, 12))
    image[draw.disk(at, size, shape=image.shape)] += 0.6
    if is_ring:
        image[draw.disk(at, size - 4, shape=image.shape)] -= 0.6
    small = transform.resize(filters.gaussian(image, 1), (32, 32))
    shape = measure.regionprops(measure.label(small > filters.threshold_otsu(small)))[0]
    gradients = feature.hog(small, orientations=4, pixels_per_cell=(8, 8), cells_per_block=(1, 1))
    return np.append(gradients, [shape.solidity, shape.extent, shape.eccentricity]).astype("float32")


y = draws.integers(0, 2, 200)
x = np.stack([features(each) for each in y])
layers = [tf.keras.Input((67,)), tf.keras.layers.Dense(16, "relu"), tf.keras.layers.Dense(1, "sigmoid")]
model, callbacks = for_horovod(*layers, loss="binary_crossentropy")
trains(model, x, y, epochs=8, callbacks=callbacks)
survives(model, x[:8])
