"""Train by Horovod on mel spectrograms that librosa makes of chirps, which soundfile writes and librosa reads."""

import tempfile

import librosa
import numpy as np
import soundfile
import tensorflow as tf
from shown import for_horovod, rank, survives, trains

RATE = 8000
draws = np.random.default_rng(rank())


def spectrogram(rises):
    low = draws.uniform(300, 1500)
    sound = librosa.chirp(fmin=low, fmax=low * (2 if rises else 1.01), sr=RATE, duration=0.5)
    with tempfile.NamedTemporaryFile(suffix=".wav") as file:
        soundfile.write(file.name, sound + draws.normal(0, 0.01, sound.shape), RATE)
        read, _ = librosa.load(file.name, sr=RATE)
    mel = librosa.feature.melspectrogram(y=read, sr=RATE, n_fft=512, hop_length=256, n_mels=24)
    return librosa.power_to_db(mel, ref=np.max)[:, :15, None] / np.float32(80) + 1


y = draws.integers(0, 2, 128)
x = np.stack([spectrogram(each) for each in y]).astype("float32")
layers = [tf.keras.layers.Conv2D(8, 3, activation="relu"), tf.keras.layers.Flatten()]
layers = [tf.keras.Input((24, 15, 1)), *layers, tf.keras.layers.Dense(1, "sigmoid")]
model, callbacks = for_horovod(*layers, loss="binary_crossentropy", rate=0.002)
trains(model, x, y, epochs=6, callbacks=callbacks)
survives(model, x[:8])
