"""Train a small BERT of tf-models-official with its optimizer, on all hosts by MultiWorkerMirrored."""

import numpy as np
import tensorflow as tf
from official.modeling import optimization
from official.nlp.modeling import models, networks
from shown import loads, model_dir, rank, trains

OPTIMIZER = {
    "optimizer": {"type": "adamw", "adamw": {"weight_decay_rate": 0.01, "exclude_from_weight_decay": ["bias"]}},
    "learning_rate": {"type": "polynomial", "polynomial": {"initial_learning_rate": 0.002, "decay_steps": 100}},
    "warmup": {"type": "linear", "linear": {"warmup_steps": 10}},
}


def new_model():
    encoder = networks.BertEncoder(
        vocab_size=50, hidden_size=16, num_layers=1, num_attention_heads=2, inner_dim=32, max_sequence_length=12
    )
    return models.BertClassifier(encoder, num_classes=2)


strategy = tf.distribute.MultiWorkerMirroredStrategy()
words = np.random.default_rng(rank()).integers(2, 50, (320, 12)).astype("int32")
labels = (words[:, :4] > 25).any(1).astype("int32")
x = {"input_word_ids": words, "input_mask": np.ones_like(words), "input_type_ids": np.zeros_like(words)}
data = tf.data.Dataset.from_tensor_slices((x, labels)).repeat().batch(16, drop_remainder=True)
with strategy.scope():
    model = new_model()
    factory = optimization.OptimizerFactory(optimization.OptimizationConfig(OPTIMIZER))
    optimizer = factory.build_optimizer(factory.build_learning_rate())
    model.compile(optimizer, tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
trains(model, data, epochs=4, steps_per_epoch=8)
rows, other = {name: values[:4] for name, values in x.items()}, new_model()
path = tf.train.Checkpoint(model=model).write(str(model_dir() / "bert"))
tf.train.Checkpoint(model=other).read(path).assert_existing_objects_matched()
loads(model(rows), other(rows))
