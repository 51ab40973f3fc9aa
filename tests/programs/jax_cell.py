"""Train three weights in mode jax, by the interface --api, and write them; or perform the action --do at a step.

--api jit: plain JAX, compiled with shardings; flax: Flax and Optax; fit, loop: Keras 3 on its JAX backend. All weights
begin with zero and should reach 1, 2, 3.
"""

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("--api", choices=["jit", "flax", "fit", "loop"], default="jit")
parser.add_argument("--do", default="")
parser.add_argument("--on", type=int, default=0)
parser.add_argument("--steps", type=int, default=120)
args, _ = parser.parse_known_args()
TARGET, BATCH, RATE = np.array([[1.0], [2.0], [3.0]], np.float32), 32, 0.3


def batches(seed):
    draws = np.random.default_rng(seed)
    for _ in range(args.steps):
        x = draws.uniform(-1, 1, (BATCH, 3)).astype(np.float32)
        yield x, x @ TARGET


def tell(weights, place):
    told = {"index": place.rank, "tasks": place.size, "weights": [round(float(each), 2) for each in np.ravel(weights)]}
    Path(os.environ["SM_OUTPUT_DATA_DIR"], f"process-{place.rank}.json").write_text(json.dumps(told))
    print("trained", json.dumps(told), flush=True)


def work(seconds):
    """Compute by NumPy and by jax, and print nothing."""
    import jax

    x, squared = np.ones([400, 400], np.float32), jax.jit(lambda x: jax.numpy.tanh(x @ x))
    until, used = time.monotonic() + seconds, time.process_time() + seconds
    while time.monotonic() < until or time.process_time() < used:
        x = np.asarray(squared(np.linalg.qr(x)[0]))


def act(step, place):
    """Perform the action --do at step 20 of one process, or stop when jax reports SIGTERM."""
    if step == 20 and not place.rank:
        print("acts at", step, flush=True)
    if step == 20 and place.rank == args.on:
        match args.do:
            case "raises":
                raise ValueError("bad batch")
            case "exits":
                raise SystemExit(3)
            case "kills":
                os.kill(os.getpid(), signal.SIGKILL)
            case "kills at first" if os.environ["ENTRYPOINT_RESTART_COUNT"] == "0":
                os.kill(os.getpid(), signal.SIGKILL)
            case "works and hangs":
                work(seconds=5)
                print("has worked", flush=True)
                time.sleep(600)
    if args.do == "saves":
        from jax.experimental import multihost_utils

        time.sleep(0.05)
        if multihost_utils.reached_preemption_sync_point(step):
            print("saved at step", step, flush=True)
            sys.exit()


def jit():
    import jax

    from sagemaker_tf_data import initialize_jax

    place = initialize_jax()
    mesh = jax.sharding.Mesh(jax.devices(), ("batch",))
    rows, everywhere = (
        jax.sharding.NamedSharding(mesh, spec)
        for spec in (jax.sharding.PartitionSpec("batch"), jax.sharding.PartitionSpec())
    )
    weights = jax.device_put(np.zeros([3, 1], np.float32), everywhere)

    @jax.jit
    def step(weights, x, y):
        return weights - RATE * jax.grad(lambda at: jax.numpy.mean((x @ at - y) ** 2))(weights)

    for number, batch in enumerate(batches(place.rank)):
        act(number, place)
        weights = step(weights, *(jax.make_array_from_process_local_data(rows, part) for part in batch))
        weights.block_until_ready()
    tell(weights, place)


def flax():
    import jax
    import optax
    from flax import nnx

    from sagemaker_tf_data import initialize_jax

    place = initialize_jax()
    mesh = jax.sharding.Mesh(jax.devices(), ("batch",))
    rows, everywhere = (
        jax.sharding.NamedSharding(mesh, spec)
        for spec in (jax.sharding.PartitionSpec("batch"), jax.sharding.PartitionSpec())
    )
    model = nnx.Linear(3, 1, use_bias=False, kernel_init=nnx.initializers.zeros, rngs=nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.sgd(RATE), wrt=nnx.Param)
    graph, state = nnx.split((model, optimizer))
    model, optimizer = nnx.merge(graph, jax.device_put(jax.tree.map(np.asarray, state), everywhere))

    @nnx.jit
    def step(model, optimizer, x, y):
        optimizer.update(model, nnx.grad(lambda model: jax.numpy.mean((model(x) - y) ** 2))(model))

    for x, y in batches(place.rank):
        step(model, optimizer, *(jax.make_array_from_process_local_data(rows, part) for part in (x, y)))
    tell(model.kernel[...], place)


def keras_model():
    import keras

    from sagemaker_tf_data import initialize_jax

    place = initialize_jax()
    keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")])
    return keras, model, place


def fit():
    import tensorflow as tf

    keras, model, place = keras_model()
    x, y = (np.concatenate(parts) for parts in zip(*batches(place.rank), strict=True))
    model.compile(keras.optimizers.SGD(RATE), "mse")
    model.fit(tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH, drop_remainder=True), epochs=1, verbose=2)
    tell(model.get_weights()[0], place)


def loop():
    import jax

    keras, model, place = keras_model()
    optimizer = keras.optimizers.SGD(RATE)
    optimizer.build(model.trainable_variables)
    mesh = jax.sharding.Mesh(jax.devices(), ("batch",))
    rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("batch"))

    def loss(trainable, others, x, y):
        found, others = model.stateless_call(trainable, others, x, training=True)
        return keras.ops.mean((found - y) ** 2), others

    @jax.jit
    def step(state, x, y):
        trainable, others, slots = state
        (_, others), grads = jax.value_and_grad(loss, has_aux=True)(trainable, others, x, y)
        trainable, slots = optimizer.stateless_apply(slots, grads, trainable)
        return trainable, others, slots

    state = tuple(
        [each.value for each in of]
        for of in (model.trainable_variables, model.non_trainable_variables, optimizer.variables)
    )
    for batch in batches(place.rank):
        state = step(state, *(jax.make_array_from_process_local_data(rows, part) for part in batch))
    tell(state[0][0], place)


{"jit": jit, "flax": flax, "fit": fit, "loop": loop}[args.api]()
