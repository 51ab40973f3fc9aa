"""Train by Horovod while rank 0 keeps a ClearML task, offline, which takes what TensorBoard's callback writes."""

import os

import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf
from clearml import Task
from shown import agree, falls, survives, wrote

hvd.init()
x = np.random.default_rng(hvd.rank()).normal(size=(512, 8)).astype("float32")
y = x @ np.arange(8, dtype="float32")[:, None]
model = tf.keras.Sequential([tf.keras.Input((8,)), tf.keras.layers.Dense(16, "relu"), tf.keras.layers.Dense(1)])
model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.Adam(0.01)), "mse")
callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
if hvd.rank() == 0:
    Task.set_offline(offline_mode=True)
    task = Task.init(project_name="zoo", task_name="zoo", reuse_last_task_id=False)
    task.connect({"units": 16})
    callbacks.append(tf.keras.callbacks.TensorBoard(os.environ["SM_OUTPUT_DATA_DIR"]))
found = model.fit(x, y, epochs=5, verbose=0, callbacks=callbacks).history["loss"]
if hvd.rank() == 0:
    for epoch, loss in enumerate(found):
        task.get_logger().report_scalar("training", "loss", loss, epoch)
    task.flush(wait_for_uploads=True)
    folder = task.get_offline_mode_folder()
    task.close()
    wrote(folder, "metrics.jsonl")
falls(found[0], found[-1])
agree(model.get_weights())
survives(model, x[:8])
