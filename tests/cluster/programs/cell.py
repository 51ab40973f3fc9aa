"""Train a linear model in the job's mode, by the interface that --api names; write the result.

--api fit: Keras's `fit`; loop: a custom training loop; estimator: tf.estimator. Image and environment decide which
version of Keras `tf.keras` is. This file may not name the module of Keras 2, which unsupported.py would find. All
weights begin with zero and should reach 1, 2, 3; each task writes its final weights.
"""

import argparse
import json
import os
from importlib import import_module
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

TARGET = np.array([[1.0], [2.0], [3.0]], np.float32)
BATCH, STEPS, RATE = 32, 120, 0.3

parser = argparse.ArgumentParser()
parser.add_argument("--api", choices=["fit", "loop", "estimator"])
parser.add_argument("--way", choices=["single", "ps_script", "ps_server", "mwms", "horovod", "mpi4py"])
args, _ = parser.parse_known_args()
task = json.loads(os.environ.get("TF_CONFIG", "{}")).get("task", {"type": "none", "index": 0})


def rows(seed=0):
    """Yield batches without end."""
    features = tf.data.Dataset.random(seed=seed + 1).map(
        lambda number: tf.random.stateless_uniform([BATCH, 3], tf.stack([number, number]), -1.0, 1.0)
    )
    return features.map(lambda x: (x, tf.matmul(x, TARGET)))


def tell(weights, tasks):
    weights = [round(float(each), 2) for each in np.ravel(weights)]
    told = {"task": task["type"], "index": task["index"], "tasks": tasks, "weights": weights}
    keras = import_module(tf.keras.Model.__module__.partition(".")[0])
    told |= {"keras": keras.__version__, "tensorflow": tf.__version__}
    rank = os.environ.get("OMPI_COMM_WORLD_RANK", task["index"])
    with open(Path(os.environ["SM_OUTPUT_DATA_DIR"], f"{task['type']}-{rank}.json"), "w") as file:
        json.dump(told, file)
    print("trained", json.dumps(told), flush=True)


def model():
    layers = [tf.keras.Input((3,)), tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")]
    return tf.keras.Sequential(layers)


def optimizer():
    return tf.keras.optimizers.SGD(RATE)


# ---- fit -------------------------------------------------------------------------------------------------------------


def fit(strategy, tasks):
    with strategy.scope():
        made = model()
        made.compile(optimizer(), "mse")
    history = made.fit(rows(), epochs=2, steps_per_epoch=STEPS // 2, verbose=2)
    assert history.history["loss"][-1] < 1e-2
    tell(made.get_weights()[0], tasks)


def fit_horovod():
    import horovod.tensorflow.keras as hvd

    hvd.init()
    made = model()
    made.compile(hvd.DistributedOptimizer(optimizer()), "mse")
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
    made.fit(rows(hvd.rank()), epochs=2, steps_per_epoch=STEPS // 2, callbacks=callbacks, verbose=2)
    tell(made.get_weights()[0], hvd.size())


def fit_mpi4py():
    from mpi4py import MPI

    world = MPI.COMM_WORLD

    class Average(tf.keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model.set_weights([world.allreduce(each) / world.size for each in self.model.get_weights()])

    made = model()
    made.compile(optimizer(), "mse")
    made.fit(rows(world.rank), epochs=2, steps_per_epoch=STEPS // 2, callbacks=[Average()], verbose=2)
    tell(made.get_weights()[0], world.size)


def fit_parameter_server(strategy):
    with strategy.scope():
        made, chosen = model(), optimizer()
        if hasattr(chosen, "jit_compile"):  # True where there are GPUs, and XLA takes no variable of another server
            chosen.jit_compile = False
        made.compile(chosen, "mse", steps_per_execution=10)
    try:
        data = tf.keras.utils.experimental.DatasetCreator(lambda context: rows(context.input_pipeline_id))
    except AttributeError:  # Keras 3 has none
        data = rows()
    made.fit(data, epochs=2, steps_per_epoch=STEPS // 2, verbose=2)
    tell(made.get_weights()[0], 2)


# ---- a loop of one's own ---------------------------------------------------------------------------------------------


def loop(gradients, tasks, seed=0):
    """Train in a loop. `gradients(tape, loss, variables)` returns this rank's gradients averaged over all ranks."""
    made, chosen = model(), optimizer()
    for x, y in rows(seed).take(STEPS):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((made(x, training=True) - y) ** 2)
        found = gradients(tape, loss, made.trainable_variables)
        chosen.apply_gradients(zip(found, made.trainable_variables, strict=True))
    tell(made.get_weights()[0], tasks)


def loop_horovod():
    import horovod.tensorflow as hvd

    hvd.init()
    loop(lambda tape, loss, of: hvd.DistributedGradientTape(tape).gradient(loss, of), hvd.size(), hvd.rank())


def loop_mpi4py():
    from mpi4py import MPI

    world = MPI.COMM_WORLD

    def gradients(tape, loss, of):
        return [tf.constant(world.allreduce(each.numpy()) / world.size) for each in tape.gradient(loss, of)]

    loop(gradients, world.size, world.rank)


def loop_mirrored(strategy):
    with strategy.scope():
        made, chosen = model(), optimizer()
    batches = iter(strategy.distribute_datasets_from_function(lambda context: rows(context.input_pipeline_id)))

    @tf.function
    def step(batch):
        def replica(x, y):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((made(x, training=True) - y) ** 2) / strategy.num_replicas_in_sync
            gradients = tape.gradient(loss, made.trainable_variables)
            chosen.apply_gradients(zip(gradients, made.trainable_variables, strict=True))

        strategy.run(replica, args=batch)

    for _ in range(STEPS):
        step(next(batches))
    tell(made.get_weights()[0], strategy.num_replicas_in_sync)


def loop_parameter_server(strategy):
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        weights = tf.Variable(tf.zeros([3, 1]))

    @tf.function
    def step(batches):
        x, y = next(batches)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((tf.matmul(x, weights) - y) ** 2)
        weights.assign_sub(RATE * tape.gradient(loss, weights))

    batches = iter(coordinator.create_per_worker_dataset(rows))
    for _ in range(STEPS):
        coordinator.schedule(step, args=(batches,))
    coordinator.join()
    tell(weights.numpy(), 2)


# ---- tf.estimator ----------------------------------------------------------------------------------------------------


def estimator(wrap=lambda chosen: chosen, tasks=1, hooks=(), seed=0, **settings):
    tf1 = tf.compat.v1

    def model_fn(features, labels, mode):
        weights = tf1.get_variable("weights", [3, 1], initializer=tf1.zeros_initializer())
        loss = tf.reduce_mean((tf.matmul(features, weights) - labels) ** 2)
        train = wrap(tf1.train.GradientDescentOptimizer(RATE)).minimize(loss, tf1.train.get_or_create_global_step())
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train)

    folder = f"/opt/ml/checkpoints/{seed}"
    trains = tf.estimator.Estimator(model_fn, folder, tf.estimator.RunConfig(**settings))
    spec = tf.estimator.TrainSpec(lambda: rows(seed), max_steps=STEPS, hooks=hooks)
    if "train_distribute" in settings or args.way == "ps_script":
        tf.estimator.train_and_evaluate(trains, spec, tf.estimator.EvalSpec(lambda: rows(9), steps=1))
    else:
        trains.train(spec.input_fn, hooks, max_steps=STEPS)
    # A worker beside a chief may end before the last checkpoint.
    if task["type"] != "worker" or (args.way == "mwms" and task["index"] == 0):
        tell(trains.get_variable_value("weights"), tasks)


def estimator_horovod():
    import horovod.tensorflow as hvd

    hvd.init()
    estimator(hvd.DistributedOptimizer, hvd.size(), [hvd.BroadcastGlobalVariablesHook(0)], hvd.rank())


# ---- which -----------------------------------------------------------------------------------------------------------


def parameter_server():
    """Return the strategy on the chief. On a worker or ps, serve until SIGTERM."""
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type == "worker":
        tf.distribute.Server(resolver.cluster_spec(), "worker", resolver.task_id, protocol="grpc").join()
    return tf.distribute.ParameterServerStrategy(resolver)


if args.api == "fit":
    match args.way:
        case "single":
            fit(tf.distribute.get_strategy(), 1)
        case "mwms":
            fit(tf.distribute.MultiWorkerMirroredStrategy(), 2)
        case "horovod":
            fit_horovod()
        case "mpi4py":
            fit_mpi4py()
        case _:
            fit_parameter_server(parameter_server())
elif args.api == "loop":
    match args.way:
        case "single":
            loop(lambda tape, loss, of: tape.gradient(loss, of), 1)
        case "mwms":
            loop_mirrored(tf.distribute.MultiWorkerMirroredStrategy())
        case "horovod":
            loop_horovod()
        case "mpi4py":
            loop_mpi4py()
        case _:
            loop_parameter_server(parameter_server())
else:
    match args.way:
        case "horovod":
            estimator_horovod()
        case "mwms":
            estimator(tasks=2, train_distribute=tf.distribute.experimental.MultiWorkerMirroredStrategy())
        case _:
            estimator(tasks=2 if args.way == "ps_script" else 1)
