"""Train a graph network of Spektral on small graphs; Horovod averages the gradients."""

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
from shown import agree, falls, loads, model_dir
from spektral.data import Dataset, DisjointLoader, Graph
from spektral.layers import GCSConv, GlobalSumPool


class Graphs(Dataset):
    """Make graphs whose label is the sum of what their nodes have."""

    def read(self):
        draws = np.random.default_rng(hvd.rank())
        found = []
        for _ in range(160):
            x, a = draws.normal(size=(6, 4)), draws.integers(0, 2, (6, 6))
            found.append(
                Graph(x=x.astype("float32"), a=np.maximum(a, a.T).astype("float32"), y=x.sum(keepdims=True)[0])
            )
        return found


class Network(tf.keras.Model):
    """Pass messages once, and add up the nodes of each graph."""

    def __init__(self):
        super().__init__()
        self.messages, self.pool, self.score = GCSConv(16, "relu"), GlobalSumPool(), tf.keras.layers.Dense(1)

    def call(self, inputs):
        x, a, graph = inputs
        return self.score(self.pool([self.messages([x, a]), graph]))


hvd.init()
model, optimizer, losses = Network(), tf.keras.optimizers.Adam(0.01), []
for inputs, y in DisjointLoader(Graphs(), batch_size=16, epochs=8):
    with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
        losses.append(tf.reduce_mean((model(inputs) - y) ** 2))
    if len(losses) == 1:
        hvd.broadcast_variables(model.variables, root_rank=0)
    optimizer.apply_gradients(zip(tape.gradient(losses[-1], model.variables), model.variables, strict=True))
falls(losses[0], losses[-1])
agree(model.get_weights())
path, other = str(model_dir() / "network.weights.h5"), Network()
model.save_weights(path)
other(inputs)
other.load_weights(path)
loads(model(inputs), other(inputs))
