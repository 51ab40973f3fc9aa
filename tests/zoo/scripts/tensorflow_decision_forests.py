"""Train gradient boosted trees of tensorflow-decision-forests on each host, as many do for an ensemble."""

import numpy as np
import pandas as pd
import tensorflow as tf
import tensorflow_decision_forests as tfdf
from shown import agree, falls, loads, model_dir

draws = np.random.default_rng(0)
rows = pd.DataFrame({"size": draws.normal(size=500), "colour": draws.choice(["red", "green", "blue"], 500)})
rows["label"] = ((rows["size"] > 0) ^ (rows["colour"] == "red")).astype(int)
data = tfdf.keras.pd_dataframe_to_tf_dataset(rows, label="label")
model = tfdf.keras.GradientBoostedTreesModel(num_trees=30, random_seed=1, verbose=0)
model.fit(data)
logs = model.make_inspector().training_logs()
falls(logs[0].evaluation.loss, logs[-1].evaluation.loss)
predictions = model.predict(data, verbose=0)
agree([predictions])
path = str(model_dir() / "1")
model.save(path)
loads(predictions, tf.keras.models.load_model(path).predict(data, verbose=0))
