"""Train by Horovod with MLflow's autolog on rank 0, in a local database, and load the model that it has logged."""

import os
import tempfile

import horovod.tensorflow.keras as hvd
import mlflow
import numpy as np
import tensorflow as tf
from shown import agree, falls, loads, model_dir, wrote

hvd.init()
folder = os.environ["SM_OUTPUT_DATA_DIR"] if hvd.rank() == 0 else tempfile.mkdtemp()
mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
mlflow.set_experiment(mlflow.create_experiment("zoo", f"file://{folder}/artifacts"))
x = np.random.default_rng(hvd.rank()).normal(size=(512, 8)).astype("float32")
y = x @ np.arange(8, dtype="float32")[:, None]
model = tf.keras.Sequential([tf.keras.Input((8,)), tf.keras.layers.Dense(16, "relu"), tf.keras.layers.Dense(1)])
model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.Adam(0.01)), "mse")
starts = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
mlflow.tensorflow.autolog(log_models=False, log_datasets=False, disable=hvd.rank() > 0)
with mlflow.start_run() as run:
    found = model.fit(x, y, epochs=5, verbose=0, callbacks=[starts]).history["loss"]
    if hvd.rank() == 0:
        history = mlflow.MlflowClient().get_metric_history(run.info.run_id, "loss")
        assert [round(each.value, 4) for each in history] == [round(each, 4) for each in found]
        wrote(folder, "mlflow.db")
falls(found[0], found[-1])
agree(model.get_weights())
kept = model_dir() / "model"
mlflow.tensorflow.save_model(model, kept, pip_requirements=["tensorflow"])
again = mlflow.tensorflow.load_model(str(kept), keras_model_kwargs={"compile": False})
loads(model.predict(x[:8], verbose=0), again.predict(x[:8], verbose=0))
