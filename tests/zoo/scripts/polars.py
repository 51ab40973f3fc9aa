"""Train on all workers on a table that polars reads lazily, joins and encodes, each worker its own rows."""

import tempfile
from pathlib import Path

import numpy as np
import polars as pl
import tensorflow as tf
from shown import rank, survives, trains

strategy = tf.distribute.MultiWorkerMirroredStrategy()
draws, size = np.random.default_rng(0), 2048
folder = Path(tempfile.mkdtemp())
pl.DataFrame({"city": draws.choice(list("abc"), size), "area": draws.uniform(20, 120, size)}).write_parquet(
    folder / "rents.parquet"
)
cities = pl.LazyFrame({"city": list("abc"), "price": [8.0, 12.0, 20.0]})
table = (
    pl.scan_parquet(folder / "rents.parquet")
    .with_row_index()
    .filter(pl.col("index") % 2 == rank())
    .join(cities, on="city")
    .with_columns(rent=pl.col("area") * pl.col("price") / 1000, area=pl.col("area") / pl.col("area").max())
    .collect()
    .to_dummies("city")
)
x = table.select("area", "city_a", "city_b", "city_c").to_numpy().astype("float32")
y = table["rent"].to_numpy().astype("float32")
data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(size).repeat().batch(32)
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(16, "relu"), tf.keras.layers.Dense(1)])
    model.compile(tf.keras.optimizers.Adam(0.01), "mse")
trains(model, data, epochs=5, steps_per_epoch=20)
survives(model, x[:8], "1", compile=True)
