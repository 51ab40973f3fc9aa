"""Write a data set with a builder of tensorflow-datasets, and train on this worker's even split of it."""

import tempfile

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds
from shown import rank, survives, trains


class Sums(tfds.core.GeneratorBasedBuilder):
    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        x = tfds.features.Tensor(shape=(4,), dtype=np.float32)
        features = tfds.features.FeaturesDict({"x": x, "y": np.float32})
        return tfds.core.DatasetInfo(builder=self, features=features, supervised_keys=("x", "y"))

    def _split_generators(self, downloads):
        return {"train": self._generate_examples()}

    def _generate_examples(self):
        for number, x in enumerate(np.random.default_rng(0).normal(size=(320, 4)).astype(np.float32)):
            yield number, {"x": x, "y": x.sum()}


strategy = tf.distribute.MultiWorkerMirroredStrategy()
(builder := Sums(data_dir=tempfile.mkdtemp())).download_and_prepare()
data = builder.as_dataset(split=tfds.even_splits("train", n=2)[rank()], as_supervised=True)
options = tf.data.Options()  # each worker has its own rows already
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
data = data.repeat().batch(16).with_options(options)
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(1)])
    model.compile(tf.keras.optimizers.SGD(0.1), "mse")
trains(model, data, epochs=4, steps_per_epoch=8)
survives(model, np.ones((1, 4)), compile=True)
