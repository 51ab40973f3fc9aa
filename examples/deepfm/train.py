"""Trains DeepFM on click data: alone, with parameter servers, or with Horovod, as the job was launched.

The three differ in where the variables live and who computes gradients, and in nothing else. Each of them
ends with a plain model in the memory of one process, which evaluates and saves it. Other tasks begin with such a model
of an earlier job: `--task eval`, `infer` and `export`.
"""

import json
import math
import os
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read when TensorFlow is imported: warnings and worse

import data
import parameter_servers
import tasks
from kept import Progress, save, say
from model import compiled, predictor
from sagemaker_tf_data import end_together, pin_gpu
from settings import parse_args


def main():
    args = parse_args()
    if args.unknown:
        say(f"no hyperparameters of this program, so ignored: {' '.join(args.unknown)}")
    {"train": train, "eval": tasks.eval_task, "infer": tasks.infer_task, "export": tasks.export_task}[args.task](args)


def train(args):
    training, evaluation = data.split()
    for rows in (training, evaluation):
        data.check(rows, args.sizes)
    cluster = json.loads(os.environ.get("TF_CONFIG") or "{}").get("cluster", {})
    if "OMPI_COMM_WORLD_SIZE" in os.environ:
        way = train_with_horovod
    elif "ps" in cluster and "worker" in cluster:
        way = parameter_servers.train
    else:
        way = train_alone
    model = way(training, args)
    if model is None:
        return  # another process has the model, and speaks for all
    tasks.tell_evaluation(predictor(model), evaluation, args.sizes)
    save(model, Path(args.model_dir) / "1", args.sizes)  # TensorFlow Serving wants a version number for a name


def train_alone(rows, args):
    model = compiled(args)
    batches = data.shuffled_batches(rows, args.batch_size, sizes=args.sizes)
    progress = Progress(model, args)
    for epoch in progress.epochs_left():
        history = model.fit(batches, verbose=0)
        progress.reached(epoch, history.history["loss"][0], args.batch_size)
    return model


def train_with_horovod(rows, args):
    """Train the whole model on every rank, with a part of the rows; average the gradients at every step."""
    import horovod.tensorflow.keras as hvd  # only here: the other modes do without it
    from horovod.tensorflow import broadcast_variables

    hvd.init()
    pin_gpu()  # its own, by local rank: each rank would take all
    # Ranks step together on `size` times the rows. Averaging them takes noise out of the gradient, and
    # longer steps pay it back: by the square root, which is how the noise falls.
    model = compiled(args, math.sqrt(hvd.size()), hvd.DistributedOptimizer)
    # Checkpoints are rank 0's, on its host or in a folder that all hosts share. The others are told: all begin
    # where rank 0 begins, weights, the optimizer's memory and numbers alike.
    progress = Progress(model, args)
    broadcast_variables([*model.variables, *model.optimizer.variables, progress.over], root_rank=0)
    # Ranks wait for each other at every step: one that had a batch more than the others would wait for ever.
    batches = end_together(data.shuffled_batches(rows, args.batch_size, sizes=args.sizes))
    for epoch in progress.epochs_left():
        history = model.fit(batches, verbose=0)
        progress.reached(epoch, history.history["loss"][0], args.batch_size * hvd.size())
    return model if hvd.rank() == 0 else None


if __name__ == "__main__":
    main()
