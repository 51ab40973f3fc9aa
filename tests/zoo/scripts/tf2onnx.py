"""Train by Horovod, export the network with tf2onnx, and run it with ONNX Runtime."""

import horovod.tensorflow.keras as hvd
import numpy as np
import onnxruntime
import tensorflow as tf
import tf2onnx
from shown import agree, falls, loads, model_dir

hvd.init()
x = np.random.default_rng(hvd.rank()).normal(size=(512, 8, 8, 1)).astype("float32")
y = (x[:, :4].mean((1, 2, 3)) > x[:, 4:].mean((1, 2, 3))).astype("float32")
layers = [
    tf.keras.Input((8, 8, 1)),
    tf.keras.layers.Conv2D(8, 3, padding="same", activation="relu"),
    tf.keras.layers.BatchNormalization(),
    tf.keras.layers.Flatten(),
    tf.keras.layers.Dense(1, "sigmoid"),
]
model = tf.keras.Sequential(layers)
model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.Adam(0.01)), "binary_crossentropy")
starts = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
found = model.fit(x, y, epochs=5, verbose=0, callbacks=[starts]).history["loss"]
falls(found[0], found[-1])
agree(model.trainable_variables)
path = str(model_dir() / "model.onnx")
signature = [tf.TensorSpec([None, 8, 8, 1], tf.float32, name="images")]
tf2onnx.convert.from_function(tf.function(lambda images: model(images)), signature, opset=17, output_path=path)
session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
loads(model.predict(x[:8], verbose=0), session.run(None, {"images": x[:8]})[0])
