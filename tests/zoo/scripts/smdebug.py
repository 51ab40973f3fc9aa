"""Train by Horovod under SageMaker Debugger's hook, which saves losses and weights, and read them as a trial."""

import os
from pathlib import Path

import horovod.tensorflow.keras as hvd
import numpy as np
import smdebug.tensorflow as smd
import tensorflow as tf
from shown import agree, falls, survives, wrote
from smdebug.trials import create_trial

hvd.init()
x = np.random.default_rng(hvd.rank()).normal(size=(512, 8)).astype("float32")
y = x @ np.arange(8, dtype="float32")[:, None]
model = tf.keras.Sequential([tf.keras.Input((8,)), tf.keras.layers.Dense(16, "relu"), tf.keras.layers.Dense(1)])
model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.Adam(0.01)), "mse")
folder = Path(os.environ["SM_OUTPUT_DATA_DIR"], "tensors")
hook = smd.KerasHook(
    str(folder), include_collections=["losses", "metrics"], save_config=smd.SaveConfig(save_interval=5)
)
callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hook]
found = model.fit(x, y, epochs=5, verbose=0, callbacks=callbacks).history["loss"]
hook.close()
falls(found[0], found[-1])
agree(model.get_weights())
survives(model, x[:8])
if hvd.rank() == 0:
    wrote(folder)
    trial = create_trial(str(folder))
    losses = trial.tensor(trial.tensor_names(collection="losses")[0]).values()
    assert losses[max(losses)] < losses[0]
