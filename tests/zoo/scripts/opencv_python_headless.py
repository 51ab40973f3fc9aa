"""Train by Horovod to tell circles from squares, which OpenCV draws, encodes as PNG, decodes and blurs in tf.data."""

import cv2
import numpy as np
import tensorflow as tf
from shown import for_horovod, rank, survives, trains

draws = np.random.default_rng(rank())


def drawn(is_circle):
    image = np.zeros((32, 32, 3), np.uint8)
    at, size = draws.integers(11, 21, 2).tolist(), int(draws.integers(6, 10))
    corners = cv2.boxPoints((at, (2 * size, 2 * size), 30.0)).astype(np.int32)
    cv2.circle(image, at, size, (250, 200, 100), -1) if is_circle else cv2.fillPoly(image, [corners], (250, 200, 100))
    return cv2.imencode(".png", image)[1].tobytes()


def decoded(png):
    image = cv2.imdecode(np.frombuffer(png, np.uint8), cv2.IMREAD_GRAYSCALE)
    return cv2.GaussianBlur(cv2.resize(image, (16, 16)), (3, 3), 0)[..., None] / np.float32(255)


y = draws.integers(0, 2, 512)
data = tf.data.Dataset.from_tensor_slices([drawn(each) for each in y])
data = data.map(lambda png: tf.ensure_shape(tf.numpy_function(decoded, [png], tf.float32), [16, 16, 1]))
x = np.stack(list(data.as_numpy_iterator()))
layers = [tf.keras.layers.Conv2D(8, 3, activation="relu"), tf.keras.layers.Flatten()]
layers = [tf.keras.Input((16, 16, 1)), *layers, tf.keras.layers.Dense(1, "sigmoid")]
model, callbacks = for_horovod(*layers, loss="binary_crossentropy", rate=0.005)
trains(model, x, y, epochs=4, callbacks=callbacks)
survives(model, x[:8])
