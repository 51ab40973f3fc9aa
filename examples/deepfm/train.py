"""Trains DeepFM on click data: alone, with parameter servers, or with Horovod, as the job was launched.

The three differ in where the variables live and who computes gradients, and in nothing else. Each of them
ends with a plain model in the memory of one process, which evaluates and saves it.
"""

import argparse
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


def main():
    args = parse_args()
    training, evaluation = data.split()
    rows = data.count_rows(training)
    say(f"training on {', '.join(map(os.path.basename, training))} rows={rows}")

    cluster = json.loads(os.environ.get("TF_CONFIG") or "{}").get("cluster", {})
    if "OMPI_COMM_WORLD_SIZE" in os.environ:
        train = train_with_horovod
    elif "ps" in cluster and "worker" in cluster:
        train = train_with_parameter_servers
    else:
        train = train_alone

    began = time.monotonic()
    model, steps = train(training, rows, args)
    if model is None:
        return  # another process has the model, and speaks for all
    seconds = time.monotonic() - began
    trained = steps * args.batch_size
    say(f"trained rows={trained} seconds={seconds:.1f} rows_per_second={trained / seconds:.0f}")

    say(f"evaluating on {', '.join(map(os.path.basename, evaluation))}, which training has not seen")
    auc, count = evaluate(model, evaluation)
    say(f"evaluation auc={auc:.4f} rows={count}")

    save(model, Path(args.model_dir) / "1")  # TensorFlow Serving wants a version number for a name


def parse_args():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--epochs", type=int, default=4, help="more than 6 learn these few rows by heart")
    parser.add_argument(
        "--batch-size", "--batch_size", type=int, default=64, help="rows per step and process"
    )
    parser.add_argument("--learning-rate", "--learning_rate", type=float, default=0.1)
    # Not an argument: SageMaker's SDK sends a `--model_dir` of its own, which is an address in S3.
    parser.set_defaults(model_dir=os.environ.get("SM_MODEL_DIR", "/opt/ml/model"))
    args, _ = parser.parse_known_args()
    args.checkpoints = Path(args.model_dir).parent / "checkpoints"  # /opt/ml/checkpoints
    return args


def compiled(args, learning_rate=None, wrap=lambda optimizer: optimizer):
    """DeepFM with Adagrad, which slows down rows that come often and leaves the rest as fast as they were.

    It also touches only the rows that a batch has looked up. Adam moves its averages in all of them.
    """
    model = deepfm()
    model.compile(
        wrap(tf.keras.optimizers.Adagrad(learning_rate or args.learning_rate)), "binary_crossentropy"
    )
    return model


def train_alone(files, rows, args):
    steps = math.ceil(rows / args.batch_size)
    model = compiled(args)
    keep = keep_checkpoints(model, args)
    done = int(model.optimizer.iterations)
    model.fit(
        data.endless_batches(files, args.batch_size),
        steps_per_epoch=steps,
        initial_epoch=done // steps,
        epochs=args.epochs,
        callbacks=[keep],
        verbose=2,
    )
    return model, steps * args.epochs - done


def keep_checkpoints(model, args):
    """Puts the model where the last checkpoint left it, if there is one; returns the callback that makes the next.

    A checkpoint is the weights, Adagrad's memory and the number of steps, after every epoch. It gets its name when
    it is complete, so whoever is killed while writing one leaves the one before.
    """
    model.optimizer.build(model.trainable_variables)
    state = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
    manager = tf.train.CheckpointManager(state, str(args.checkpoints), max_to_keep=2)
    if manager.restore_or_initialize():
        say(f"resumed at step {int(model.optimizer.iterations)} from {manager.latest_checkpoint}")
    return tf.keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: manager.save())


def train_with_parameter_servers(files, rows, args):
    """This process is the chief: it builds the model on the parameter servers and hands steps to the workers.

    The launcher runs a TensorFlow server on every other host (setting `ps_workers=server`), so there is no
    code here for any other role. Nor for workers that die: Keras's `fit` schedules each step on a ClusterCoordinator,
    which gives the steps of a lost worker to the others, and to itself again once the launcher has
    started it anew (setting `restarts`). With no worker left it waits for the first to come back.
    """
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type != "chief":
        raise SystemExit(
            f"deepfm: started as {resolver.task_type}, but only the chief needs this script: "
            "set the hyperparameter sagemaker_entrypoint_ps_workers=server"
        )
    strategy = tf.distribute.ParameterServerStrategy(
        resolver,
        # Cuts the embeddings into one piece per parameter server, and leaves small variables whole.
        variable_partitioner=tf.distribute.experimental.partitioners.MinSizePartitioner(
            min_shard_bytes=256 << 10, max_shards=resolver.cluster_spec().num_tasks("ps")
        ),
    )
    with strategy.scope():
        model = compiled(args)

    # The function runs on every worker, with files of the same names. Workers do not wait for each other, and
    # the context they get says "pipeline 0 of 1" to all of them: TensorFlow wants every worker to
    # read all rows, each in an order of its own. So no `shard` here, and above all no
    # `tf.random.set_seed`: with it all workers would shuffle alike and take the same batches.
    batches = tf.keras.utils.experimental.DatasetCreator(
        lambda context: data.endless_batches(files, args.batch_size)
    )
    steps = math.ceil(rows / args.batch_size)
    model.fit(batches, steps_per_epoch=steps, epochs=args.epochs, verbose=2)
    return on_this_host(model), steps * args.epochs


def on_this_host(trained):
    """A copy of the model whose variables are whole, and here.

    Saving `trained` itself lets every parameter server write its variables to its *own* disk, and then
    fails, or needs a folder that all hosts share. Fetching them takes a moment and needs nothing.
    """
    model = deepfm()
    pieces = iter(trained.get_weights())  # those that were cut come as pieces, in order
    whole = []
    for like in model.get_weights():
        found = [next(pieces)]
        while sum(map(len, found)) < len(like):
            found.append(next(pieces))
        whole.append(np.concatenate(found))
    model.set_weights(whole)
    return model


def train_with_horovod(files, rows, args):
    """Every rank has the whole model and a part of the rows; gradients are averaged at every step."""
    import horovod.tensorflow.keras as hvd  # only here: the other modes do without it
    from horovod.tensorflow import broadcast_variables

    hvd.init()
    # All ranks of a host share its processors, and each would otherwise start a thread for every one of them.
    processors = int(os.environ.get("SM_NUM_CPUS") or os.cpu_count())
    tf.config.threading.set_intra_op_parallelism_threads(max(1, processors // hvd.local_size()))

    # Ranks step together on `size` times the rows. Averaging them takes noise out of the gradient, and
    # longer steps pay it back: by the square root, which is how the noise falls.
    model = compiled(args, args.learning_rate * math.sqrt(hvd.size()), hvd.DistributedOptimizer)
    steps = math.ceil(rows / (args.batch_size * hvd.size()))  # the same number on every rank
    # Checkpoints are of rank 0, on its host or in a folder that all hosts share. The others are told: all begin
    # where rank 0 begins, weights, Adagrad's memory and number of steps alike.
    first = hvd.rank() == 0
    model.optimizer.build(model.trainable_variables)
    keep = [keep_checkpoints(model, args)] if first else []
    broadcast_variables([*model.variables, *model.optimizer.variables], root_rank=0)
    done = int(model.optimizer.iterations)
    model.fit(
        data.endless_batches(files, args.batch_size, shards=hvd.size(), index=hvd.rank()),
        steps_per_epoch=steps,
        initial_epoch=done // steps,
        epochs=args.epochs,
        callbacks=keep,
        verbose=2 if first else 0,
    )
    return (model if first else None), (steps * args.epochs - done) * hvd.size()


def evaluate(model, files):
    """(area under the ROC curve, rows). The curve has 2,000 points: Keras's 200 are too coarse."""
    auc = tf.keras.metrics.AUC(num_thresholds=2000)
    rows = 0
    for features, labels in data.batches(files, batch_size=1000):
        auc.update_state(labels, model(features, training=False)[:, 0])
        rows += len(labels)
    return float(auc.result()), rows


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
