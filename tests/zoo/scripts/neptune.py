"""Train by Horovod while rank 0 logs to Neptune, offline, by its callback for Keras."""

import os

import neptune
import tensorflow as tf
from neptune.integrations.tensorflow_keras import NeptuneCallback
from shown import for_horovod, rank, survives, trains, weighted_sums, wrote

x, y = weighted_sums()
model, callbacks = for_horovod(tf.keras.Input((8,)), tf.keras.layers.Dense(16, "relu"), tf.keras.layers.Dense(1))
if rank() == 0:
    os.chdir(os.environ["SM_OUTPUT_DATA_DIR"])  # it writes into .neptune of the working folder
    run = neptune.init_run(project="zoo/zoo", mode="offline")
    run["parameters"] = {"units": 16}
    callbacks.append(NeptuneCallback(run=run))
found = trains(model, x, y, epochs=5, callbacks=callbacks)
if rank() == 0:
    run.stop()
    wrote(".neptune/offline", "data-*.log")
survives(model, x[:8])
