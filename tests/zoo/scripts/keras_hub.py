"""Train a small BERT classifier of KerasHub by Keras 3's fit on JAX, on all hosts together."""

import keras
import keras_hub
import numpy as np
from shown import loads, model_dir, trains

from sagemaker_tf_data import initialize_jax

place = initialize_jax()
keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))
words = np.random.default_rng(place.rank).integers(2, 50, (128, 12)).astype("int32")
labels = (words[:, :4] > 25).any(1).astype("int32")
x = {"token_ids": words, "segment_ids": np.zeros_like(words), "padding_mask": np.ones_like(words)}
backbone = keras_hub.models.BertBackbone(
    vocabulary_size=50, num_layers=1, num_heads=2, hidden_dim=16, intermediate_dim=32, max_sequence_length=12
)
model = keras_hub.models.BertTextClassifier(backbone=backbone, num_classes=2, preprocessor=None, dropout=0.0)
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(keras.optimizers.Adam(0.005), loss, jit_compile=True)
trains(model, x, labels, batch_size=16, epochs=4)
path, ones = str(model_dir() / "bert.keras"), np.ones((4, 12), "int32")
model.save(path)
rows = dict.fromkeys(x, ones)  # the same in all processes
loads(model(rows), keras.saving.load_model(path)(rows))
