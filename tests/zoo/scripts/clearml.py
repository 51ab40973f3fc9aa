"""Train by Horovod while rank 0 keeps a ClearML task, offline, which takes what TensorBoard's callback writes."""

import os

import tensorflow as tf
from clearml import Task
from shown import for_horovod, rank, survives, trains, weighted_sums, wrote

x, y = weighted_sums()
model, callbacks = for_horovod(tf.keras.Input((8,)), tf.keras.layers.Dense(16, "relu"), tf.keras.layers.Dense(1))
if rank() == 0:
    Task.set_offline(offline_mode=True)
    task = Task.init(project_name="zoo", task_name="zoo", reuse_last_task_id=False)
    task.connect({"units": 16})
    callbacks.append(tf.keras.callbacks.TensorBoard(os.environ["SM_OUTPUT_DATA_DIR"]))
found = trains(model, x, y, epochs=5, callbacks=callbacks)
if rank() == 0:
    for epoch, loss in enumerate(found):
        task.get_logger().report_scalar("training", "loss", loss, epoch)
    task.flush(wait_for_uploads=True)
    folder = task.get_offline_mode_folder()
    task.close()
    wrote(folder, "metrics.jsonl")
survives(model, x[:8])
