"""Train on all workers on a dataset of Hugging Face's datasets, mapped, split by worker and made a tf.data.Dataset."""

import numpy as np
import tensorflow as tf
from datasets import Dataset, load_from_disk
from datasets.distributed import split_dataset_by_node
from shown import rank, survives, trains, wrote

strategy = tf.distribute.MultiWorkerMirroredStrategy()
good = np.random.default_rng(0).integers(0, 2, 640)
words = {word: number for number, word in enumerate(["", "the", "film", "was", "good", "bad", "very"])}
texts = [f"the film was {'very ' * (n % 3)}{'good' if each else 'bad'}" for n, each in enumerate(good)]


def tokens(batch):
    numbers = [[words[word] for word in text.split()] for text in batch["text"]]
    return {"tokens": [each + [0] * (6 - len(each)) for each in numbers]}


rows = Dataset.from_dict({"text": texts, "good": good}).map(tokens, batched=True, remove_columns=["text"])
rows = rows.train_test_split(test_size=0.2, seed=0)
rows.save_to_disk("/tmp/rows")
wrote("/tmp/rows", "*.arrow")
mine = split_dataset_by_node(load_from_disk("/tmp/rows")["train"], rank(), 2)
data = mine.to_tf_dataset(batch_size=16, columns="tokens", label_cols="good", shuffle=True, drop_remainder=True)
with strategy.scope():
    layers = [tf.keras.layers.Embedding(7, 8), tf.keras.layers.GlobalAveragePooling1D()]
    model = tf.keras.Sequential([tf.keras.Input((6,), dtype="int64"), *layers, tf.keras.layers.Dense(1, "sigmoid")])
    model.compile(tf.keras.optimizers.Adam(0.02), "binary_crossentropy")
trains(model, data.repeat(), epochs=5, steps_per_epoch=16)
survives(model, rows["test"].with_format("numpy")[:8]["tokens"], "1", compile=True)
