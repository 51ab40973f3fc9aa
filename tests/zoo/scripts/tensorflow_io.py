"""Tell low tones from high ones by spectrograms of tensorflow-io, out of FLAC that it has encoded and decodes."""

import numpy as np
import tensorflow as tf
import tensorflow_io as tfio
from shown import rank, survives, trains


def spectrogram(flac, label):
    """Decode one tone; return how loud each band of frequencies is at each time."""
    wave = tf.cast(tfio.audio.decode_flac(flac, shape=[2000, 1], dtype=tf.int16)[:, 0], tf.float32) / 32768
    power = tfio.audio.spectrogram(wave, nfft=128, window=128, stride=64)
    return tf.ensure_shape(tfio.audio.melscale(power, rate=8000, mels=16, fmin=0, fmax=4000), [32, 16]), label


strategy = tf.distribute.MultiWorkerMirroredStrategy()
draws = np.random.default_rng(rank())
labels = draws.integers(0, 2, 160)
tones = np.sin(np.outer(300 + 1200 * labels + draws.uniform(0, 200, 160), np.arange(2000) / 8000 * 2 * np.pi))
files = [tfio.audio.encode_flac(tf.constant((8000 * tone)[:, None], tf.int16), rate=8000).numpy() for tone in tones]
data = tf.data.Dataset.from_tensor_slices((files, labels.astype("float32"))).map(spectrogram).cache()
rows = next(iter(data.batch(4)))[0]
with strategy.scope():
    layers = [tf.keras.Input((32, 16)), tf.keras.layers.LayerNormalization(), tf.keras.layers.GlobalAveragePooling1D()]
    model = tf.keras.Sequential([*layers, tf.keras.layers.Dense(1)])
    model.compile(tf.keras.optimizers.Adam(0.05), tf.keras.losses.BinaryCrossentropy(from_logits=True))
trains(model, data.repeat().batch(16), epochs=4, steps_per_epoch=8)
survives(model, rows, compile=True)
