"""Train a classifier on a text encoder that hub.KerasLayer loads; the script exports one instead of a download."""

import tempfile

import numpy as np
import tensorflow as tf
import tensorflow_hub as hub
from shown import loads, model_dir, rank, trains


class Encoder(tf.train.Checkpoint):
    """Encode texts as a module of TensorFlow Hub does."""

    def __init__(self):
        super().__init__()
        self.table = tf.Variable(np.random.default_rng(0).normal(size=(64, 16)).astype("float32"))
        self.variables = self.trainable_variables = [self.table]

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def __call__(self, texts):
        numbers = tf.strings.to_hash_bucket_fast(tf.strings.split(texts), 64)
        return tf.math.reduce_mean(tf.nn.embedding_lookup(self.table, numbers.to_tensor()), axis=1)


strategy = tf.distribute.MultiWorkerMirroredStrategy()
handle = tempfile.mkdtemp()
tf.saved_model.save(Encoder(), handle)
good = np.random.default_rng(rank()).integers(0, 2, 320)
texts = np.array([f"it was {'good' if each else 'bad'} film number {n % 7}" for n, each in enumerate(good)])
data = tf.data.Dataset.from_tensor_slices((texts, good.astype("float32"))).repeat().batch(16)
with strategy.scope():
    layers = [hub.KerasLayer(handle, input_shape=[], dtype=tf.string, trainable=True), tf.keras.layers.Dense(1)]
    model = tf.keras.Sequential(layers)
    model.compile(tf.keras.optimizers.Adam(0.02), tf.keras.losses.BinaryCrossentropy(from_logits=True))
trains(model, data, epochs=4, steps_per_epoch=8)
folder = model_dir() / "1"
model.save(folder)
loads(model(texts[:8]), hub.KerasLayer(str(folder))(tf.constant(texts[:8])))
