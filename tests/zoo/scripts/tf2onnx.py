"""Train by Horovod, export the network with tf2onnx, and run it with ONNX Runtime."""

import numpy as np
import onnxruntime
import tensorflow as tf
import tf2onnx
from shown import agree, falls, for_horovod, loads, model_dir, rank

x = np.random.default_rng(rank()).normal(size=(512, 8, 8, 1)).astype("float32")
y = (x[:, :4].mean((1, 2, 3)) > x[:, 4:].mean((1, 2, 3))).astype("float32")
layers = [
    tf.keras.Input((8, 8, 1)),
    tf.keras.layers.Conv2D(8, 3, padding="same", activation="relu"),
    tf.keras.layers.BatchNormalization(),
    tf.keras.layers.Flatten(),
    tf.keras.layers.Dense(1, "sigmoid"),
]
model, callbacks = for_horovod(*layers, loss="binary_crossentropy")
found = model.fit(x, y, epochs=5, verbose=0, callbacks=callbacks).history["loss"]
falls(found[0], found[-1])
agree(model.trainable_variables)
path = str(model_dir() / "model.onnx")
signature = [tf.TensorSpec([None, 8, 8, 1], tf.float32, name="images")]
tf2onnx.convert.from_function(tf.function(lambda images: model(images)), signature, opset=17, output_path=path)
session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
loads(model.predict(x[:8], verbose=0), session.run(None, {"images": x[:8]})[0])
