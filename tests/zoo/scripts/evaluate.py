"""Train by Horovod and judge each rank's predictions with a metric of evaluate; those of its hub need a network."""

import datasets
import evaluate
import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
from shown import for_horovod, rank, survives, trains


class Accuracy(evaluate.Metric):
    def _info(self):
        kinds = {"predictions": datasets.Value("int64"), "references": datasets.Value("int64")}
        return evaluate.MetricInfo(description="share of right ones", citation="", features=datasets.Features(kinds))

    def _compute(self, predictions, references):
        return {"accuracy": float(np.mean(np.array(predictions) == np.array(references)))}


x = np.random.default_rng(rank()).normal(size=(512, 4)).astype("float32")
y = (x.sum(1) > 0).astype("int64")
layers = [tf.keras.Input((4,)), tf.keras.layers.Dense(16, "relu"), tf.keras.layers.Dense(1, "sigmoid")]
model, callbacks = for_horovod(*layers, loss="binary_crossentropy")
trains(model, x, y, epochs=6, callbacks=callbacks)
survives(model, x)
predicted = model.predict(x, verbose=0)[:, 0]
metric = Accuracy()
for part in np.array_split(np.arange(512), 4):
    metric.add_batch(predictions=predicted[part] > 0.5, references=y[part])
judged = metric.compute()["accuracy"]
assert float(hvd.allreduce(tf.constant(judged))) > 0.8
