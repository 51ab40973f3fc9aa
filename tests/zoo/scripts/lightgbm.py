"""Train a network by Horovod on the leaves of LightGBM's trees, and keep both models."""

import lightgbm as lgb
import numpy as np
import tensorflow as tf
from shown import HOSTS, for_horovod, loads, model_dir, rank, trains

x = np.random.default_rng(0).normal(size=(1024, 6))
y = (x[:, 0] * x[:, 1] + x[:, 2] > 0).astype("float32")
options = {"objective": "binary", "num_leaves": 8, "num_threads": 1, "verbose": -1, "deterministic": True, "seed": 0}
trees = lgb.train(options, lgb.Dataset(x, y), num_boost_round=10)
mine = slice(rank(), None, HOSTS)
layers = [tf.keras.layers.Embedding(8, 4), tf.keras.layers.Flatten(), tf.keras.layers.Dense(1, "sigmoid")]
model, callbacks = for_horovod(tf.keras.Input((10,)), *layers, loss="binary_crossentropy")
leaves = trees.predict(x, pred_leaf=True)
trains(model, leaves[mine], y[mine], epochs=5, callbacks=callbacks)
folder = model_dir()
model.save(folder / "model.keras")
trees.save_model(folder / "trees.txt")
again = tf.keras.models.load_model(folder / "model.keras", compile=False)
leaves_again = lgb.Booster(model_file=folder / "trees.txt").predict(x[:8], pred_leaf=True)
loads(model.predict(leaves[:8], verbose=0), again.predict(leaves_again, verbose=0))
