"""Train a classifier by Horovod on word vectors that gensim has learnt, and keep both."""

import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf
from gensim.models import Word2Vec
from shown import loads, model_dir, trains

hvd.init()
draws = np.random.default_rng(0)
topics = [["goal", "ball", "team", "match"], ["bread", "salt", "oven", "soup"]]
kinds = draws.integers(0, 2, 400)
texts = [draws.choice(topics[kind], 5).tolist() for kind in kinds]
vectors = Word2Vec(texts, vector_size=8, window=3, min_count=1, workers=1, epochs=20, seed=0).wv
numbers = np.array([[vectors.key_to_index[word] for word in text] for text in texts])
mine = slice(hvd.rank(), None, hvd.size())
start = tf.keras.initializers.Constant(vectors.vectors)
layers = [
    tf.keras.Input((5,)),
    tf.keras.layers.Embedding(*vectors.vectors.shape, embeddings_initializer=start),
    tf.keras.layers.GlobalAveragePooling1D(),
    tf.keras.layers.Dense(1, "sigmoid"),
]
model = tf.keras.Sequential(layers)
model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.Adam(0.02)), "binary_crossentropy")
starts = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
trains(model, numbers[mine], kinds[mine], epochs=8, callbacks=[starts])
folder = model_dir()
model.save(folder / "model.keras")
vectors.save(str(folder / "vectors.kv"))
again = tf.keras.models.load_model(folder / "model.keras", compile=False)
loads(model.predict(numbers[:8], verbose=0), again.predict(numbers[:8], verbose=0))
assert type(vectors).load(str(folder / "vectors.kv")).most_similar("goal", topn=3)[0][0] in topics[0]
