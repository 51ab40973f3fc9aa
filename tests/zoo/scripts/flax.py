"""Train a network of Flax, with its BatchNorm, on all processes of JAX, and keep it by flax.serialization."""

import jax
import numpy as np
import optax
from flax import nnx, serialization
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from shown import agree, falls, loads, model_dir

jax.distributed.initialize()
rows, everywhere = (NamedSharding(Mesh(jax.devices(), ("batch",)), PartitionSpec(*of)) for of in (["batch"], []))


def network(of):
    return nnx.Sequential(nnx.Linear(8, 16, rngs=of), nnx.BatchNorm(16, rngs=of), nnx.relu, nnx.Linear(16, 1, rngs=of))


@nnx.jit
def step(model, optimizer, x, y):
    loss, gradients = nnx.value_and_grad(lambda model: ((model(x) - y) ** 2).mean())(model)
    optimizer.update(model, gradients)
    return loss


model = network(nnx.Rngs(0))
optimizer = nnx.Optimizer(model, optax.adam(0.02), wrt=nnx.Param)
graph, state = nnx.split((model, optimizer))
model, optimizer = nnx.merge(graph, jax.device_put(jax.tree.map(np.asarray, state), everywhere))
losses = []
for x in np.random.default_rng(jax.process_index()).normal(size=(60, 32, 8)).astype("float32"):
    parts = [jax.make_array_from_process_local_data(rows, each) for each in (x, x.sum(1, keepdims=True))]
    losses.append(float(step(model, optimizer, *parts)))
falls(losses[0], losses[-1])
model.eval()
graph, state = nnx.split(model)
weights = jax.tree.map(np.asarray, nnx.to_pure_dict(state))
agree(jax.tree.leaves(weights))
(path := model_dir() / "model.msgpack").write_bytes(serialization.msgpack_serialize(weights))
nnx.replace_by_pure_dict(again := nnx.state(network(nnx.Rngs(1))), serialization.msgpack_restore(path.read_bytes()))
loads(nnx.merge(graph, jax.tree.map(np.asarray, state))(x), nnx.merge(graph, again)(x))
