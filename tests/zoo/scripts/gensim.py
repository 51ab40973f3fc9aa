"""Train a classifier by Horovod on word vectors that gensim has learnt, and keep both."""

import numpy as np
import tensorflow as tf
from gensim.models import Word2Vec
from shown import HOSTS, for_horovod, model_dir, rank, survives, trains

draws = np.random.default_rng(0)
topics = [["goal", "ball", "team", "match"], ["bread", "salt", "oven", "soup"]]
kinds = draws.integers(0, 2, 400)
texts = [draws.choice(topics[kind], 5).tolist() for kind in kinds]
vectors = Word2Vec(texts, vector_size=8, window=3, min_count=1, workers=1, epochs=20, seed=0).wv
numbers = np.array([[vectors.key_to_index[word] for word in text] for text in texts])
mine = slice(rank(), None, HOSTS)
start = tf.keras.initializers.Constant(vectors.vectors)
layers = [
    tf.keras.Input((5,)),
    tf.keras.layers.Embedding(*vectors.vectors.shape, embeddings_initializer=start),
    tf.keras.layers.GlobalAveragePooling1D(),
    tf.keras.layers.Dense(1, "sigmoid"),
]
model, callbacks = for_horovod(*layers, loss="binary_crossentropy", rate=0.02)
trains(model, numbers[mine], kinds[mine], epochs=8, callbacks=callbacks)
survives(model, numbers[:8])
vectors.save(path := str(model_dir() / "vectors.kv"))
assert type(vectors).load(path).most_similar("goal", topn=3)[0][0] in topics[0]
