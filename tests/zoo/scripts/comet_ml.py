"""Train by Horovod while rank 0 logs to Comet, offline, by its callback for Keras."""

import os

import comet_ml  # before TensorFlow, which it watches
import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf
from shown import agree, falls, survives, wrote

hvd.init()
x = np.random.default_rng(hvd.rank()).normal(size=(512, 8)).astype("float32")
y = x @ np.arange(8, dtype="float32")[:, None]
model = tf.keras.Sequential([tf.keras.Input((8,)), tf.keras.layers.Dense(16, "relu"), tf.keras.layers.Dense(1)])
model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.Adam(0.01)), "mse")
callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
folder = os.environ["SM_OUTPUT_DATA_DIR"]
if hvd.rank() == 0:
    experiment = comet_ml.OfflineExperiment(project_name="zoo", workspace="zoo", offline_directory=folder)
    experiment.log_parameters({"units": 16})
    callbacks.append(experiment.get_callback("tf-keras"))
found = model.fit(x, y, epochs=5, verbose=0, callbacks=callbacks).history["loss"]
if hvd.rank() == 0:
    assert round(experiment.get_metric("loss"), 4) == round(found[-1], 4)
    experiment.end()
    wrote(folder, "*.zip")
falls(found[0], found[-1])
agree(model.get_weights())
survives(model, x[:8])
