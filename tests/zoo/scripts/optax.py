"""Train plain JAX on all processes by a chain of Optax: clipping, AdamW under a schedule, and an average of updates."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from shown import agree, falls, loads, model_dir

from sagemaker_tf_data import initialize_jax

place = initialize_jax()
mesh = Mesh(jax.devices(), ("batch",))
rows, everywhere = NamedSharding(mesh, PartitionSpec("batch")), NamedSharding(mesh, PartitionSpec())
start = [jax.random.normal(jax.random.key(n), size) for n, size in enumerate([(8, 16), (16, 1)])]
weights = jax.device_put(jax.tree.map(np.asarray, start), everywhere)
rate = optax.warmup_cosine_decay_schedule(0.0, 0.05, warmup_steps=10, decay_steps=80)
optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(rate), optax.ema(0.5))


def predict(weights, x):
    return jnp.tanh(x @ weights[0]) @ weights[1]


@jax.jit
def step(weights, state, x, y):
    loss, gradients = jax.value_and_grad(lambda at: optax.losses.huber_loss(predict(at, x), y).mean())(weights)
    updates, state = optimizer.update(gradients, state, weights)
    return optax.apply_updates(weights, updates), state, loss


state, losses = jax.jit(optimizer.init)(weights), []
for x in np.random.default_rng(place.rank).normal(size=(80, 32, 8)).astype("float32"):
    parts = [jax.make_array_from_process_local_data(rows, each) for each in (x, x.sum(1, keepdims=True))]
    weights, state, loss = step(weights, state, *parts)
    losses.append(float(loss))
falls(losses[0], losses[-1])
agree(weights := [np.asarray(each) for each in weights])
np.savez(path := model_dir() / "weights.npz", *weights)
loads(predict(weights, x), predict(list(np.load(path).values()), x))
