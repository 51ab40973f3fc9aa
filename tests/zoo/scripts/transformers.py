"""Train a small BERT of transformers' TensorFlow classes on all workers, from random weights."""

import numpy as np
import tensorflow as tf
from shown import loads, model_dir, rank, trains
from transformers import BertConfig, TFBertForSequenceClassification

strategy = tf.distribute.MultiWorkerMirroredStrategy()
draws = np.random.default_rng(rank())
words = draws.integers(5, 60, (256, 12))
labels = draws.integers(0, 2, 256)
words[labels == 1, 3] = 4  # the word that tells the classes apart
texts = {"input_ids": words, "attention_mask": np.ones_like(words)}
data = tf.data.Dataset.from_tensor_slices((texts, labels)).repeat().batch(16)
config = BertConfig(
    vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, num_labels=2
)
with strategy.scope():
    model = TFBertForSequenceClassification(config)
    model.compile(tf.keras.optimizers.Adam(2e-3), tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
trains(model, data, epochs=5, steps_per_epoch=16)
folder = model_dir()
model.save_pretrained(folder)
some = {name: tf.constant(each[:8]) for name, each in texts.items()}
loads(model(some).logits, TFBertForSequenceClassification.from_pretrained(folder)(some).logits)
