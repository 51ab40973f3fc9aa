"""Train a classifier by Horovod and draw its confusion matrix and losses with seaborn."""

import os
from pathlib import Path

import horovod.tensorflow.keras as hvd
import matplotlib as mpl
import numpy as np
import pandas as pd
import seaborn as sns
import tensorflow as tf
from shown import loads, model_dir, trains, wrote

mpl.use("Agg")
hvd.init()
x = np.random.default_rng(hvd.rank()).normal(size=(600, 2)).astype("float32")
y = (np.hypot(*x.T) > 0.8).astype(int) + (np.hypot(*x.T) > 1.5)
layers = [tf.keras.Input((2,)), tf.keras.layers.Dense(32, "relu"), tf.keras.layers.Dense(3, "softmax")]
model = tf.keras.Sequential(layers)
model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.Adam(0.02)), "sparse_categorical_crossentropy")
starts = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
trains(model, x, y, epochs=6, callbacks=[starts])
path = model_dir() / "model.keras"
model.save(path)
predicted = model.predict(x, verbose=0)
loads(predicted, tf.keras.models.load_model(path, compile=False).predict(x, verbose=0))
if hvd.rank() == 0:
    folder = Path(os.environ["SM_OUTPUT_DATA_DIR"])
    rows = pd.DataFrame({"x": x[:, 0], "y": x[:, 1], "class": y, "predicted": predicted.argmax(1)})
    sns.heatmap(pd.crosstab(rows["class"], rows["predicted"]), annot=True, fmt="d").figure.savefig(
        folder / "matrix.png"
    )
    sns.relplot(rows, x="x", y="y", hue="predicted", style="class").savefig(folder / "points.png")
    wrote(folder, "matrix.png")
    wrote(folder, "points.png")
