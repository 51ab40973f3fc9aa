"""Train a classifier by Horovod and draw its confusion matrix and losses with seaborn."""

import os
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
import seaborn as sns
import tensorflow as tf
from shown import for_horovod, rank, survives, trains, wrote

mpl.use("Agg")
x = np.random.default_rng(rank()).normal(size=(600, 2)).astype("float32")
y = (np.hypot(*x.T) > 0.8).astype(int) + (np.hypot(*x.T) > 1.5)
layers = [tf.keras.Input((2,)), tf.keras.layers.Dense(32, "relu"), tf.keras.layers.Dense(3, "softmax")]
model, callbacks = for_horovod(*layers, loss="sparse_categorical_crossentropy", rate=0.02)
trains(model, x, y, epochs=6, callbacks=callbacks)
survives(model, x)
predicted = model.predict(x, verbose=0)
if rank() == 0:
    folder = Path(os.environ["SM_OUTPUT_DATA_DIR"])
    rows = pd.DataFrame({"x": x[:, 0], "y": x[:, 1], "class": y, "predicted": predicted.argmax(1)})
    sns.heatmap(pd.crosstab(rows["class"], rows["predicted"]), annot=True, fmt="d").figure.savefig(
        folder / "matrix.png"
    )
    sns.relplot(rows, x="x", y="y", hue="predicted", style="class").savefig(folder / "points.png")
    wrote(folder, "matrix.png")
    wrote(folder, "points.png")
