"""Train a network by Horovod on the leaves of XGBoost's trees, and keep both models."""

import numpy as np
import tensorflow as tf
import xgboost as xgb
from shown import HOSTS, for_horovod, loads, model_dir, rank, trains

x = np.random.default_rng(0).normal(size=(1024, 6))
y = (x[:, 0] * x[:, 1] + x[:, 2] > 0).astype("float32")
options = {"objective": "binary:logistic", "max_depth": 3, "nthread": 1, "seed": 0}
trees = xgb.train(options, xgb.DMatrix(x, y), num_boost_round=10)
mine = slice(rank(), None, HOSTS)
layers = [tf.keras.layers.Embedding(15, 4), tf.keras.layers.Flatten(), tf.keras.layers.Dense(1, "sigmoid")]
model, callbacks = for_horovod(tf.keras.Input((10,)), *layers, loss="binary_crossentropy")
leaves = trees.predict(xgb.DMatrix(x), pred_leaf=True)
trains(model, leaves[mine], y[mine], epochs=5, callbacks=callbacks)
folder = model_dir()
model.save(folder / "model.keras")
trees.save_model(folder / "trees.json")
again = tf.keras.models.load_model(folder / "model.keras", compile=False)
leaves_again = xgb.Booster(model_file=folder / "trees.json").predict(xgb.DMatrix(x[:8]), pred_leaf=True)
loads(model.predict(leaves[:8], verbose=0), again.predict(leaves_again, verbose=0))
