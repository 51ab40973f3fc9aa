"""Train by Horovod with MLflow's autolog on rank 0, in a local database, and load the model that it has logged."""

import os
import tempfile

import mlflow
import tensorflow as tf
from shown import for_horovod, loads, model_dir, rank, trains, weighted_sums, wrote

folder = os.environ["SM_OUTPUT_DATA_DIR"] if rank() == 0 else tempfile.mkdtemp()
mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
mlflow.set_experiment(mlflow.create_experiment("zoo", f"file://{folder}/artifacts"))
x, y = weighted_sums()
model, callbacks = for_horovod(tf.keras.Input((8,)), tf.keras.layers.Dense(16, "relu"), tf.keras.layers.Dense(1))
mlflow.tensorflow.autolog(log_models=False, log_datasets=False, disable=rank() > 0)
with mlflow.start_run() as run:
    found = trains(model, x, y, epochs=5, callbacks=callbacks)
    if rank() == 0:
        history = mlflow.MlflowClient().get_metric_history(run.info.run_id, "loss")
        assert [round(each.value, 4) for each in history] == [round(each, 4) for each in found]
        wrote(folder, "mlflow.db")
kept = model_dir() / "model"
mlflow.tensorflow.save_model(model, kept, pip_requirements=["tensorflow"])
again = mlflow.tensorflow.load_model(str(kept), keras_model_kwargs={"compile": False})
loads(model.predict(x[:8], verbose=0), again.predict(x[:8], verbose=0))
