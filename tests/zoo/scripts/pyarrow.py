"""Train on all workers from a Parquet dataset that pyarrow filters and reads in batches."""

import tempfile

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import tensorflow as tf
from shown import rank, survives, trains

strategy = tf.distribute.MultiWorkerMirroredStrategy()
draws = np.random.default_rng(0)
x = draws.normal(size=(2048, 4)).astype("float32")
columns = {f"x{n}": x[:, n] for n in range(4)} | {"y": x @ np.arange(4, dtype="float32"), "part": np.arange(2048) % 2}
folder = tempfile.mkdtemp()
parts = ds.partitioning(pa.schema([("part", pa.int64())]), flavor="hive")
ds.write_dataset(pa.table(columns), folder, format="parquet", partitioning=parts)


def batches():
    dataset = ds.dataset(folder, format="parquet", partitioning="hive")
    while True:
        for batch in dataset.to_batches(filter=pc.field("part") == rank(), batch_size=64):
            table = np.stack([batch[name].to_numpy() for name in ("x0", "x1", "x2", "x3", "y")], axis=1)
            yield table[:, :4], table[:, 4:]


with strategy.scope():
    model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(16, "relu"), tf.keras.layers.Dense(1)])
    model.compile(tf.keras.optimizers.Adam(0.01), "mse")
kinds = tuple(tf.TensorSpec([64, width], tf.float32) for width in (4, 1))
mine = tf.data.Dataset.from_generator(batches, output_signature=kinds)
data = strategy.distribute_datasets_from_function(lambda _: mine)
trains(model, data, epochs=5, steps_per_epoch=15)
survives(model, x[:8], "1", compile=True)
