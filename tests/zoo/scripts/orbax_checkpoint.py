"""Train plain JAX on all processes, and keep and restore checkpoints by Orbax."""

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from shown import agree, falls, loads, model_dir, wrote

from sagemaker_tf_data import initialize_jax

place = initialize_jax()
rows, everywhere = (NamedSharding(Mesh(jax.devices(), ("batch",)), PartitionSpec(*of)) for of in (["batch"], []))
state = jax.device_put({"step": np.zeros((), "int32"), "weights": np.zeros((8, 1), "float32")}, everywhere)


@jax.jit
def step(state, x, y):
    loss, gradient = jax.value_and_grad(lambda at: jnp.mean((x @ at - y) ** 2))(state["weights"])
    return {"step": state["step"] + 1, "weights": state["weights"] - 0.1 * gradient}, loss


alone = ocp.options.MultiprocessingOptions(primary_host=0, active_processes={0})  # no file system is shared
options = ocp.CheckpointManagerOptions(10, 2, multiprocessing_options=alone, create=False)
folder, losses = model_dir(), []
manager = ocp.CheckpointManager(folder, options=options) if place.rank == 0 else None
for number, x in enumerate(np.random.default_rng(place.rank).normal(size=(40, 32, 8)).astype("float32"), 1):
    parts = [jax.make_array_from_process_local_data(rows, each) for each in (x, x.sum(1, keepdims=True))]
    state, loss = step(state, *parts)
    losses.append(float(loss))
    if manager:
        manager.save(number, args=ocp.args.StandardSave(jax.tree.map(np.asarray, state)))
falls(losses[0], losses[-1])
agree([state["weights"]])
if manager:
    manager.wait_until_finished()
    wrote(folder)
    again = manager.restore(manager.latest_step())
    assert int(again["step"]) == 40
    loads(x @ np.asarray(state["weights"]), x @ again["weights"])
