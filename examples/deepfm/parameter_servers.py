"""Train by parameter servers: the chief schedules steps on the workers; the servers hold pieces of the model."""

import collections
import math
import re

import numpy as np
import tensorflow as tf

import data
from kept import Progress
from model import compiled

KERAS_3 = tf.keras.Model.__module__.startswith("keras.src.models")


def train(rows, args):
    """Make the model on the parameter servers, as the chief, and schedule steps on the workers.

    The launcher runs a TensorFlow server on every other host (setting `ps_workers=server`), so there is no
    code here for any other role. Nor for workers that die: the ClusterCoordinator gives the steps of a lost worker
    to the others, and to itself again once the launcher has started it anew (setting `restarts`). With no
    worker left it waits for the first to come back.
    """
    steps = args.steps_per_epoch or steps_of_a_pass(rows, args.batch_size)
    strategy = parameter_servers()
    with strategy.scope():
        model = compiled(args)
    here = compiled(args)  # the same on this host, in one piece: to be kept, evaluated and saved
    progress = Progress(here, args)
    send(here, model)

    # The function is called on the chief, and what it returns runs on every worker. Workers do not wait for each
    # other and have no common end of a pass: their rows go round without end, and an epoch is a number of steps.
    # No `tf.random.set_seed` here: all workers would shuffle alike.
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    dataset = coordinator.create_per_worker_dataset(
        lambda: data.shuffled_batches(rows, args.batch_size, passes=None, sizes=args.sizes)
    )
    batches, take_steps = iter(dataset), steps_on_a_worker(strategy, model)
    for epoch in progress.epochs_left():
        loss = hand_out(coordinator, take_steps, batches, steps, args.steps_per_call)
        fetch(model, here)
        progress.reached(epoch, loss, args.batch_size)
    return here


def steps_of_a_pass(rows, batch_size):
    count = data.count(rows)
    if count is None:
        raise SystemExit(
            "deepfm: with parameter servers an epoch is a number of steps, and rows in a pipe cannot be counted: "
            "wanted the hyperparameter steps-per-epoch, the steps of all workers together"
        )
    return math.ceil(count / batch_size)


def parameter_servers():
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type != "chief":
        raise SystemExit(
            f"deepfm: started as {resolver.task_type}, but only the chief needs this script: "
            "set the hyperparameter sagemaker_entrypoint_ps_workers=server"
        )
    # Cuts the embeddings into one piece per parameter server, and leaves small variables whole.
    cut = tf.distribute.experimental.partitioners.MinSizePartitioner(
        min_shard_bytes=256 << 10, max_shards=resolver.cluster_spec().num_tasks("ps")
    )
    # Variables of Keras 3 cannot be cut: each is on one of the parameter servers.
    return tf.distribute.ParameterServerStrategy(resolver, variable_partitioner=None if KERAS_3 else cut)


def hand_out(coordinator, take_steps, batches, steps, per_call):
    """Make the workers take the given number of steps in all; return the loss of the last ones.

    `schedule` returns at once, and a worker that is done with one call finds the next waiting. If the chief asked for
    the loss of each step, one worker would work at a time; if each call were one step, they would spend half of
    their time on calls.
    """
    losses = collections.deque(maxlen=100)
    for begin in range(0, steps, per_call):
        count = tf.constant(min(per_call, steps - begin))
        losses.append(coordinator.schedule(take_steps, args=(batches, count)))
    coordinator.join()
    return np.mean(coordinator.fetch(list(losses)))


UNROLLED = 5  # steps in each turn of a worker's loop


def steps_on_a_worker(strategy, model):
    """Return the function that takes several steps on one worker, each with the next of that worker's batches.

    Its loop is in the graph, and runs on the parameter servers, too: at each turn the worker tells each of them whether
    there is another. So a turn is several steps, and those that are left over have a loop of their own.
    """

    @tf.function
    def take_steps(batches, count):
        losses = 0.0
        for _ in tf.range(count // UNROLLED):
            for _ in range(UNROLLED):
                losses += strategy.run(step, args=(model, next(batches)))
        for _ in tf.range(count % UNROLLED):
            losses += strategy.run(step, args=(model, next(batches)))
        return losses / tf.cast(count, losses.dtype)

    return take_steps


def step(model, batch):
    features, labels = batch
    with tf.GradientTape() as tape:
        clicks = model(features, training=True)[:, 0]
        loss = tf.keras.losses.binary_crossentropy(labels, clicks) + tf.add_n(model.losses)
    variables = model.trainable_variables
    model.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
    return loss


def fetch(model, here):
    """Copy a model and its optimizer from the parameter servers to this host.

    Saving `model` itself would let every parameter server write its variables to its *own* disk, and then
    fail, or need a folder that all hosts share. Fetching them takes a moment and needs nothing. What is saved does
    not depend on the number of parameter servers either.
    """
    for whole, pieces in both(here, model):
        whole.assign(tf.concat(pieces, axis=0) if whole.shape.rank else pieces[0])


def send(here, model):
    """Copy a model and its optimizer from this host to the parameter servers."""
    for whole, pieces in both(here, model):
        sizes = [piece.shape[0] for piece in pieces] if whole.shape.rank else []
        for piece, value in zip(pieces, tf.split(whole, sizes) if sizes else [whole], strict=True):
            piece.assign(value)


def both(here, model):
    """Yield (variable, its pieces on the parameter servers, in order) for each variable.

    Keras 2's are matched by name, and of one name in order: an optimizer has all that it remembers of one piece before
    what it remembers of the next. Keras 3 cuts none, and numbers the names of a process's second model: only the
    order is the same.
    """
    wholes, parts = ([*each.variables, *each.optimizer.variables] for each in (here, model))
    if KERAS_3:
        yield from zip(wholes, ([part] for part in parts), strict=True)
        return
    pieces = collections.defaultdict(collections.deque)
    for piece in [piece for part in parts for piece in getattr(part, "variables", [part])]:
        pieces[name_of(piece)].append(piece)
    for whole in wholes:
        found = [pieces[name_of(whole)].popleft()]
        while whole.shape.rank and sum(piece.shape[0] for piece in found) < whole.shape[0]:
            found.append(pieces[name_of(whole)].popleft())
        yield whole, found


def name_of(variable):
    """Return the name that a variable and its pieces have in common."""
    return re.sub(r"/part_\d+(?=:)", "", variable.name)
