"""Train a graph network of Spektral on small graphs; Horovod averages the gradients."""

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
from shown import agree, falls, loads, model_dir
from spektral.data import Dataset, DisjointLoader, Graph
from spektral.layers import GCSConv, GlobalSumPool


class Graphs(Dataset):
    def read(self):
        draws = np.random.default_rng(hvd.rank())
        x, a = draws.normal(size=(160, 6, 4)).astype("float32"), draws.integers(0, 2, (160, 6, 6)).astype("float32")
        return [Graph(x=x, a=np.maximum(a, a.T), y=x.sum(keepdims=True)[0]) for x, a in zip(x, a, strict=True)]


class Network(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.messages, self.pool, self.score = GCSConv(16, "relu"), GlobalSumPool(), tf.keras.layers.Dense(1)

    def call(self, inputs):
        return self.score(self.pool([self.messages(inputs[:2]), inputs[2]]))


hvd.init()
model, optimizer, losses = Network(), tf.keras.optimizers.Adam(0.01), []
for inputs, y in DisjointLoader(Graphs(), batch_size=16, epochs=4):
    with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
        losses.append(tf.reduce_mean((model(inputs) - y) ** 2))
    if len(losses) == 1:
        hvd.broadcast_variables(model.variables, root_rank=0)
    optimizer.apply_gradients(zip(tape.gradient(losses[-1], model.variables), model.variables, strict=True))
falls(losses[0], losses[-1])
agree(model.get_weights())
model.save_weights(path := str(model_dir() / "network.weights.h5"))
(other := Network())(inputs)
other.load_weights(path)
loads(model(inputs), other(inputs))
