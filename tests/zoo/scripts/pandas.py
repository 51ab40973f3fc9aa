"""Train with parameter servers on a table that pandas has cleaned, joined and encoded."""

import numpy as np
import pandas as pd
import tensorflow as tf
from shown import survives, trains

draws = np.random.default_rng(0)
size = 2000
rents = pd.DataFrame({"city": draws.choice(list("abc"), size), "area": draws.uniform(20, 120, size).round(1)})
rents.loc[draws.choice(size, 50, replace=False), "area"] = np.nan
cities = pd.DataFrame({"city": list("abc"), "price": [8.0, 12.0, 20.0]})
rents = rents.merge(cities, on="city")
rents["area"] = rents.groupby("city")["area"].transform(lambda area: area.fillna(area.median()))
rents["rent"] = rents["area"] * rents.pop("price") / 1000
features = pd.get_dummies(rents[["city", "area"]], columns=["city"]).astype("float32")
features["area"] /= features["area"].max()
x, y = features.to_numpy(), rents["rent"].to_numpy("float32")


def rows(context):
    return tf.data.Dataset.from_tensor_slices((x, y)).shuffle(size, seed=context.input_pipeline_id).repeat().batch(32)


strategy = tf.distribute.ParameterServerStrategy(tf.distribute.cluster_resolver.TFConfigClusterResolver())
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(16, "relu"), tf.keras.layers.Dense(1)])
    model.compile(tf.keras.optimizers.Adam(0.01), "mse", steps_per_execution=10)
creator = tf.keras.utils.experimental.DatasetCreator(rows)
trains(model, creator, epochs=3, steps_per_epoch=60)
survives(model, x[:8])  # a SavedModel would be written by the parameter servers, each its part
