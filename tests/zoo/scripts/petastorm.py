"""Train by Horovod on Parquet files that petastorm reads, each rank its own shard of them."""

import tempfile
from pathlib import Path

import numpy as np
import pandas
import tensorflow as tf
from petastorm import make_batch_reader
from petastorm.tf_utils import make_petastorm_dataset
from shown import HOSTS, for_horovod, rank, survives, trains

folder = Path(tempfile.mkdtemp(), "rows")  # the same on all hosts, as on a file system that they share
folder.mkdir()
for number in range(4):
    x = np.random.default_rng(number).normal(size=(256, 3)).astype("float32")
    columns = {"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "target": x @ np.array([1, 2, 3], "float32")}
    pandas.DataFrame(columns).to_parquet(folder / f"part-{number}.parquet")
model, callbacks = for_horovod(tf.keras.Input((3,)), tf.keras.layers.Dense(16, "relu"), tf.keras.layers.Dense(1))
with make_batch_reader(f"file://{folder}", num_epochs=None, cur_shard=rank(), shard_count=HOSTS) as reader:
    rows = make_petastorm_dataset(reader).unbatch().batch(32)
    data = rows.map(lambda row: (tf.stack([row.a, row.b, row.c], 1), row.target[:, None]))
    trains(model, data, epochs=5, steps_per_epoch=20, callbacks=callbacks)
survives(model, x[:8])
