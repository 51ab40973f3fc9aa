"""Trains DeepFM on click data: alone, with parameter servers, or with Horovod, as the job was launched.

The three differ in where the variables live and who computes gradients, and in nothing else. Each of them
ends with a plain model in the memory of one process, which evaluates and saves it.
"""

import argparse
import collections
import json
import math
import os
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read when TensorFlow is imported: warnings and worse

import numpy as np
import tensorflow as tf

import data
from model import deepfm
from sagemaker_tf_data import checkpoints, end_together, pin_gpu

KERAS_3 = tf.keras.Model.__module__.startswith("keras.src.models")


def main():
    args = parse_args()
    training, evaluation = data.split()

    cluster = json.loads(os.environ.get("TF_CONFIG") or "{}").get("cluster", {})
    if "OMPI_COMM_WORLD_SIZE" in os.environ:
        train = train_with_horovod
    elif "ps" in cluster and "worker" in cluster:
        train = train_with_parameter_servers
    else:
        train = train_alone
    model = train(training, args)
    if model is None:
        return  # another process has the model, and speaks for all

    auc, rows = evaluate(model, evaluation)
    say(f"evaluation auc={auc:.4f} rows={rows}")  # of rows that training has not seen
    save(model, Path(args.model_dir) / "1")  # TensorFlow Serving wants a version number for a name


def parse_args():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--epochs", type=int, default=4, help="more than 6 learn these few rows by heart")
    parser.add_argument("--batch-size", "--batch_size", type=int, default=64, help="rows per step and process")
    parser.add_argument("--learning-rate", "--learning_rate", type=float, default=0.1)
    parser.add_argument(
        "--steps-per-epoch",
        "--steps_per_epoch",
        type=int,
        help="of parameter servers: how long an epoch is, in steps of all workers; default: the rows, once",
    )
    parser.add_argument(
        "--steps-per-call",
        "--steps_per_call",
        type=int,
        default=25,
        help="of parameter servers: steps that a worker does before it asks the chief for more",
    )
    parser.add_argument("--checkpoints", help="their folder; default: where SageMaker keeps them, /opt/ml/checkpoints")
    # Not an argument: SageMaker's SDK sends a `--model_dir` of its own, which is an address in S3.
    parser.set_defaults(model_dir=os.environ.get("SM_MODEL_DIR", "/opt/ml/model"))
    args, _ = parser.parse_known_args()
    return args


def compiled(learning_rate, wrap=lambda optimizer: optimizer):
    """DeepFM with Adagrad, which slows down rows that come often and leaves the rest as fast as they were.

    It also touches only the rows that a batch has looked up. Adam moves its averages in all of them.
    """
    model = deepfm()
    model.compile(wrap(tf.keras.optimizers.Adagrad(learning_rate)), "binary_crossentropy")
    model.optimizer.build(model.trainable_variables)  # its variables are there from the start, to be restored
    return model


class Progress:
    """Where training is, also on disk: weights, Adagrad's memory, the numbers of steps and of epochs that are over.

    Begins where the last checkpoint ended, if there is one.
    """

    def __init__(self, model, args):
        self.model, self.epochs = model, args.epochs
        self.over = tf.Variable(0, dtype=tf.int64, trainable=False)
        state = tf.train.Checkpoint(model=model, optimizer=model.optimizer, epochs=self.over)
        self._saver = checkpoints.manager(state, args.checkpoints)
        self._began = time.monotonic()
        # A checkpoint holds the learning rate, too. It is this job's that counts, on the rank that reads as on those
        # that do not: Keras's list of an optimizer's variables is without it, so it would not be broadcast.
        rate = float(model.optimizer.learning_rate)
        path = self._saver.restore()
        model.optimizer.learning_rate = rate
        where = f"resumed behind epoch {int(self.over)}, from {path}" if path else "no checkpoint yet"
        say(f"training begins at step {self.steps}: {where}")

    @property
    def steps(self):
        return int(self.model.optimizer.iterations)

    def epochs_left(self):
        """The numbers, from 1, of the epochs to come."""
        return range(int(self.over) + 1, self.epochs + 1)

    def reached(self, epoch, loss):
        """An epoch is over: makes a checkpoint."""
        self.over.assign(epoch)
        self._saver.save(epoch)
        seconds = time.monotonic() - self._began
        say(f"epoch {epoch}/{self.epochs} is over: loss={loss:.4f} step={self.steps} seconds={seconds:.1f}")


def train_alone(rows, args):
    model = compiled(args.learning_rate)
    batches = data.shuffled_batches(rows, args.batch_size)
    progress = Progress(model, args)
    for epoch in progress.epochs_left():
        history = model.fit(batches, verbose=0)
        progress.reached(epoch, history.history["loss"][0])
    return model


def train_with_horovod(rows, args):
    """Every rank has the whole model and a part of the rows; gradients are averaged at every step."""
    import horovod.tensorflow.keras as hvd  # only here: the other modes do without it
    from horovod.tensorflow import broadcast_variables

    hvd.init()
    pin_gpu()  # its own, by local rank: each rank would take all
    # Ranks step together on `size` times the rows. Averaging them takes noise out of the gradient, and
    # longer steps pay it back: by the square root, which is how the noise falls.
    model = compiled(args.learning_rate * math.sqrt(hvd.size()), hvd.DistributedOptimizer)
    # Checkpoints are rank 0's, on its host or in a folder that all hosts share. The others are told: all begin
    # where rank 0 begins, weights, Adagrad's memory and numbers alike.
    progress = Progress(model, args)
    broadcast_variables([*model.variables, *model.optimizer.variables, progress.over], root_rank=0)
    # Ranks wait for each other at every step: one that had a batch more than the others would wait for ever.
    batches = end_together(data.shuffled_batches(rows, args.batch_size))
    for epoch in progress.epochs_left():
        history = model.fit(batches, verbose=0)
        progress.reached(epoch, history.history["loss"][0])
    return model if hvd.rank() == 0 else None


def train_with_parameter_servers(rows, args):
    """This process is the chief: it makes the model on the parameter servers and hands out steps to the workers.

    The launcher runs a TensorFlow server on every other host (setting `ps_workers=server`), so there is no
    code here for any other role. Nor for workers that die: the ClusterCoordinator gives the steps of a lost worker
    to the others, and to itself again once the launcher has started it anew (setting `restarts`). With no
    worker left it waits for the first to come back.
    """
    steps = args.steps_per_epoch or steps_of_a_pass(rows, args.batch_size)
    strategy = parameter_servers()
    with strategy.scope():
        model = compiled(args.learning_rate)
    here = compiled(args.learning_rate)  # the same on this host, in one piece: to be kept, evaluated and saved
    progress = Progress(here, args)
    send(here, model)

    # The function is called on the chief, and what it returns runs on every worker. Workers do not wait for each
    # other and have no common end of a pass: their rows go round without end, and an epoch is a number of steps.
    # No `tf.random.set_seed` here: all workers would shuffle alike.
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    dataset = coordinator.create_per_worker_dataset(lambda: data.shuffled_batches(rows, args.batch_size, passes=None))
    batches, take_steps = iter(dataset), steps_on_a_worker(strategy, model)
    for epoch in progress.epochs_left():
        loss = hand_out(coordinator, take_steps, batches, steps, args.steps_per_call)
        fetch(model, here)
        progress.reached(epoch, loss)
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
    """Has the workers take so many steps in all; returns the loss of the last ones.

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
    """The function that takes so many steps on one worker, each with the next of that worker's batches.

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
    """Copies a model and its optimizer from the parameter servers to this host.

    Saving `model` itself would let every parameter server write its variables to its *own* disk, and then
    fail, or need a folder that all hosts share. Fetching them takes a moment and needs nothing. What is saved does
    not depend on the number of parameter servers either.
    """
    for whole, pieces in both(here, model):
        whole.assign(tf.concat(pieces, axis=0) if whole.shape.rank else pieces[0])


def send(here, model):
    """Copies a model and its optimizer from this host to the parameter servers."""
    for whole, pieces in both(here, model):
        sizes = [piece.shape[0] for piece in pieces] if whole.shape.rank else []
        for piece, value in zip(pieces, tf.split(whole, sizes) if sizes else [whole], strict=True):
            piece.assign(value)


def both(here, model):
    """(variable, its pieces on the parameter servers) for each variable. One that was cut comes as pieces, in order."""
    cut_or_whole = [*model.variables, *model.optimizer.variables]
    pieces = iter([piece for each in cut_or_whole for piece in getattr(each, "variables", [each])])
    for whole in [*here.variables, *here.optimizer.variables]:
        found = [next(pieces)]
        while whole.shape.rank and sum(piece.shape[0] for piece in found) < whole.shape[0]:
            found.append(next(pieces))
        yield whole, found


def evaluate(model, rows):
    """(area under the ROC curve, rows). The curve has 2,000 points: Keras's 200 are too coarse."""
    auc = tf.keras.metrics.AUC(num_thresholds=2000)
    seen = 0
    for features, labels in data.batches(rows, batch_size=1000):
        auc.update_state(labels, model(features, training=False)[:, 0])
        seen += len(labels)
    return float(auc.result()), seen


def save(model, folder):
    """As a SavedModel with one signature: `ids` and `values` in, `probability` out."""

    def serve(ids, values):
        return {"probability": model({"ids": ids, "values": values}, training=False)[:, 0]}

    archive = tf.keras.export.ExportArchive()
    archive.track(model)
    archive.add_endpoint(
        "serving_default",
        serve,
        input_signature=[
            tf.TensorSpec([None, data.FIELDS], tf.int64, name="ids"),
            tf.TensorSpec([None, data.FIELDS], tf.float32, name="values"),
        ],
    )
    archive.write_out(str(folder))
    say(f"saved {folder}")


def say(text):
    if os.environ.get("OMPI_COMM_WORLD_RANK", "0") == "0":  # what all ranks know, one says
        print(f"deepfm: {text}", flush=True)


if __name__ == "__main__":
    main()
