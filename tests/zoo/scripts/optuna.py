"""Search with Optuna: rank 0 draws the trials into a local journal, and all ranks train each of them by Horovod."""

import os
from pathlib import Path

import horovod.tensorflow as hvd
import horovod.tensorflow.keras as hvd_keras
import numpy as np
import optuna
import tensorflow as tf
from optuna.storages.journal import JournalFileBackend
from shown import agree, falls, loads, model_dir, wrote

hvd.init()
x = np.random.default_rng(hvd.rank()).normal(size=(512, 8)).astype("float32")
y = x @ np.arange(8, dtype="float32")[:, None]
path = Path(os.environ["SM_OUTPUT_DATA_DIR"], "journal.log")
if hvd.rank() == 0:
    storage = optuna.storages.JournalStorage(JournalFileBackend(str(path)))
    study = optuna.create_study(storage=storage, sampler=optuna.samplers.TPESampler(seed=0))
best = None
for _ in range(4):
    trial = study.ask() if hvd.rank() == 0 else None
    chosen = trial and (trial.suggest_float("rate", 1e-4, 0.1, log=True), trial.suggest_int("units", 4, 16))
    rate, units = hvd.broadcast_object(chosen, 0)
    model = tf.keras.Sequential([tf.keras.Input((8,)), tf.keras.layers.Dense(units, "relu"), tf.keras.layers.Dense(1)])
    model.compile(hvd_keras.DistributedOptimizer(tf.keras.optimizers.Adam(rate)), "mse")
    callbacks = [hvd_keras.callbacks.BroadcastGlobalVariablesCallback(0), hvd_keras.callbacks.MetricAverageCallback()]
    found = model.fit(x, y, epochs=2, verbose=0, callbacks=callbacks).history["loss"]
    best = min(best, (found[-1], found[0], model), key=lambda each: each[0]) if best else (found[-1], found[0], model)
    if hvd.rank() == 0:
        study.tell(trial, found[-1])
falls(best[1], best[0])
agree(best[2].get_weights())
if hvd.rank() == 0:
    wrote(path.parent, path.name)
    assert study.best_value == best[0]
    kept = model_dir() / "model.keras"
    best[2].save(kept)
    loads(best[2](x[:8]), tf.keras.models.load_model(kept, compile=False)(x[:8]))
