"""Train plain JAX on all processes, and keep and restore checkpoints by Orbax, each host in its own folder."""

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from shown import agree, falls, loads, model_dir, wrote

from sagemaker_tf_data import initialize_jax

place = initialize_jax()
mesh = Mesh(jax.devices(), ("batch",))
rows, everywhere = NamedSharding(mesh, PartitionSpec("batch")), NamedSharding(mesh, PartitionSpec())
state = jax.device_put({"step": np.zeros((), "int32"), "weights": np.zeros((8, 1), "float32")}, everywhere)


@jax.jit
def step(state, x, y):
    loss, gradient = jax.value_and_grad(lambda at: jnp.mean((x @ at - y) ** 2))(state["weights"])
    return {"step": state["step"] + 1, "weights": state["weights"] - 0.1 * gradient}, loss


alone = ocp.options.MultiprocessingOptions(primary_host=None)  # no file system is shared
options = ocp.CheckpointManagerOptions(max_to_keep=2, save_interval_steps=10, multiprocessing_options=alone)
folder, draws, losses = model_dir(), np.random.default_rng(place.rank), []
with ocp.CheckpointManager(folder, options=options) as manager:
    for number in range(1, 41):
        x = draws.normal(size=(32, 8)).astype("float32")
        parts = [jax.make_array_from_process_local_data(rows, each) for each in (x, x.sum(1, keepdims=True))]
        state, loss = step(state, *parts)
        losses.append(float(loss))
        manager.save(number, args=ocp.args.StandardSave(state))
    manager.wait_until_finished()
    again = manager.restore(40, args=ocp.args.StandardRestore(jax.tree.map(jnp.zeros_like, state)))
wrote(folder)
falls(losses[0], losses[-1])
agree([state["weights"]])
assert int(again["step"]) == 40
loads(x @ np.asarray(state["weights"]), x @ np.asarray(again["weights"]))
