"""Train a small BERT classifier of KerasNLP with Keras 2, on all hosts by MultiWorkerMirrored."""

import keras_nlp
import numpy as np
import tensorflow as tf
from shown import rank, survives, trains

strategy = tf.distribute.MultiWorkerMirroredStrategy()
words = np.random.default_rng(rank()).integers(2, 50, (128, 12)).astype("int32")
labels = (words[:, :4] > 25).any(1).astype("int32")
x = {"token_ids": words, "segment_ids": np.zeros_like(words), "padding_mask": np.ones_like(words)}
data = tf.data.Dataset.from_tensor_slices((x, labels)).repeat().batch(16)
with strategy.scope():
    backbone = keras_nlp.models.BertBackbone(
        vocabulary_size=50, num_layers=1, num_heads=2, hidden_dim=16, intermediate_dim=32, max_sequence_length=12
    )
    model = keras_nlp.models.BertClassifier(backbone=backbone, num_classes=2, preprocessor=None, dropout=0.0)
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(tf.keras.optimizers.Adam(0.005), loss)
    model.jit_compile = False  # `compile` sets it, and XLA cannot gather gradients of embeddings from hosts
trains(model, data, epochs=4, steps_per_epoch=8)
survives(model, {name: values[:4] for name, values in x.items()}, compile=True)
