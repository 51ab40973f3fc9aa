"""Train message passing of tensorflow-gnn on small graphs, on all hosts by MultiWorkerMirrored."""

import numpy as np
import tensorflow as tf
import tensorflow_gnn as tfgnn
from shown import rank, survives, trains
from tensorflow_gnn.models.gcn import GCNHomGraphUpdate


def graph(features, sources, targets):
    """Return a graph of six nodes and their undirected edges."""
    ends = [tf.concat(each, 0) for each in ((sources, targets), (targets, sources))]
    adjacency = tfgnn.Adjacency.from_indices(("atoms", ends[0]), ("atoms", ends[1]))
    return tfgnn.GraphTensor.from_pieces(
        node_sets={"atoms": tfgnn.NodeSet.from_fields(sizes=[6], features={"hidden_state": features})},
        edge_sets={"bonds": tfgnn.EdgeSet.from_fields(sizes=[10], adjacency=adjacency)},
    )


strategy = tf.distribute.MultiWorkerMirroredStrategy()
draws = np.random.default_rng(rank())
x = draws.normal(size=(160, 6, 4)).astype("float32")
ends = draws.integers(0, 6, (160, 2, 5)).astype("int32")
data = tf.data.Dataset.from_tensor_slices((x, ends[:, 0], ends[:, 1], x.sum((1, 2))))
data = data.map(lambda x, sources, targets, y: (graph(x, sources, targets), y)).repeat().batch(16, drop_remainder=True)
rows = next(iter(data))[0]
with strategy.scope():
    inputs = tf.keras.Input(type_spec=data.element_spec[0])
    hidden = GCNHomGraphUpdate(units=16, add_self_loops=True)(inputs.merge_batch_to_components())
    pooled = tfgnn.keras.layers.Pool(tfgnn.CONTEXT, "sum", node_set_name="atoms")(hidden)
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(1)(pooled))
    model.compile(tf.keras.optimizers.Adam(0.01), "mse")
trains(model, data, epochs=4, steps_per_epoch=8)
survives(model, rows, "1", compile=True)
