"""Train by Horovod and judge each rank's predictions with a metric of evaluate; those of its hub need a network."""

import datasets
import evaluate
import horovod.tensorflow as hvd_tf
import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf
from shown import loads, model_dir, trains


class Accuracy(evaluate.Metric):
    def _info(self):
        kinds = {"predictions": datasets.Value("int64"), "references": datasets.Value("int64")}
        return evaluate.MetricInfo(description="share of right ones", citation="", features=datasets.Features(kinds))

    def _compute(self, predictions, references):
        return {"accuracy": float(np.mean(np.array(predictions) == np.array(references)))}


hvd.init()
x = np.random.default_rng(hvd.rank()).normal(size=(512, 4)).astype("float32")
y = (x.sum(1) > 0).astype("int64")
layers = [tf.keras.Input((4,)), tf.keras.layers.Dense(16, "relu"), tf.keras.layers.Dense(1, "sigmoid")]
model = tf.keras.Sequential(layers)
model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.Adam(0.01)), "binary_crossentropy")
starts = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
trains(model, x, y, epochs=6, callbacks=[starts])
path = model_dir() / "model.keras"
model.save(path)
predicted = model.predict(x, verbose=0)[:, 0]
loads(predicted, tf.keras.models.load_model(path, compile=False).predict(x, verbose=0)[:, 0])
metric = Accuracy()
for part in np.array_split(np.arange(512), 4):
    metric.add_batch(predictions=predicted[part] > 0.5, references=y[part])
judged = metric.compute()["accuracy"]
assert float(hvd_tf.allreduce(tf.constant(judged))) > 0.8
