"""Train by Horovod while rank 0 logs to Neptune, offline, by its callback for Keras."""

import os

import horovod.tensorflow.keras as hvd
import neptune
import numpy as np
import tensorflow as tf
from neptune.integrations.tensorflow_keras import NeptuneCallback
from shown import agree, falls, survives, wrote

hvd.init()
x = np.random.default_rng(hvd.rank()).normal(size=(512, 8)).astype("float32")
y = x @ np.arange(8, dtype="float32")[:, None]
model = tf.keras.Sequential([tf.keras.Input((8,)), tf.keras.layers.Dense(16, "relu"), tf.keras.layers.Dense(1)])
model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.Adam(0.01)), "mse")
callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
if hvd.rank() == 0:
    os.chdir(os.environ["SM_OUTPUT_DATA_DIR"])  # it writes into .neptune of the working folder
    run = neptune.init_run(project="zoo/zoo", mode="offline")
    run["parameters"] = {"units": 16}
    callbacks.append(NeptuneCallback(run=run))
found = model.fit(x, y, epochs=5, verbose=0, callbacks=callbacks).history["loss"]
if hvd.rank() == 0:
    run.stop()
    wrote(".neptune/offline", "data-*.log")
falls(found[0], found[-1])
agree(model.get_weights())
survives(model, x[:8])
