"""Train by Horovod while rank 0 logs to Comet, offline, by its callback for Keras."""

import os

import comet_ml  # before TensorFlow, which it watches
import tensorflow as tf
from shown import for_horovod, rank, survives, trains, weighted_sums, wrote

x, y = weighted_sums()
model, callbacks = for_horovod(tf.keras.Input((8,)), tf.keras.layers.Dense(16, "relu"), tf.keras.layers.Dense(1))
folder = os.environ["SM_OUTPUT_DATA_DIR"]
if rank() == 0:
    experiment = comet_ml.OfflineExperiment(project_name="zoo", workspace="zoo", offline_directory=folder)
    experiment.log_parameters({"units": 16})
    callbacks.append(experiment.get_callback("tf-keras"))
found = trains(model, x, y, epochs=5, callbacks=callbacks)
if rank() == 0:
    assert round(experiment.get_metric("loss"), 4) == round(found[-1], 4)
    experiment.end()
    wrote(folder, "*.zip")
survives(model, x[:8])
