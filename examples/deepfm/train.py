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

import tensorflow as tf

import data
import parameter_servers
from kept import Progress, earlier, save, say
from model import compiled, predictor
from sagemaker_tf_data import channel, end_together, part, pin_gpu
from settings import Sizes, parse_args


def main():
    args = parse_args()
    if args.unknown:
        say(f"no hyperparameters of this program, so ignored: {' '.join(args.unknown)}")
    {"train": train, "eval": eval_task, "infer": infer_task, "export": export_task}[args.task](args)


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
    tell_evaluation(predictor(model), evaluation, args.sizes)
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
    """Train the whole model on every rank with a part of the rows; average the gradients at every step."""
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


# ---- tasks of a model of an earlier job ------------------------------------------------------------------------------


def first():
    """Return whether this process does the work of one process, such as saving."""
    return os.environ.get("OMPI_COMM_WORLD_RANK", "0") == "0"


def eval_task(args):
    """Evaluate a model of an earlier job on the evaluation channel, or else on the training channel's last file."""
    if not first():
        return
    model = earlier(args)
    rows = data.for_evaluation() or data.split()[1]
    data.check(rows, model.sizes)
    tell_evaluation(model.predict, rows, model.sizes)


def infer_task(args):
    """Predict clicks: write a file of probabilities for each file of rows.

    Horovod's ranks divide the files among them.
    """
    rows = data.for_inference()
    model = earlier(args)
    if rows.pipe:
        if not data.is_whole(rows):
            raise SystemExit(f"deepfm: each process has a part of channel '{rows.channel}' only: wanted File mode")
        if first():
            infer(model, rows, None, f"{rows.channel}.pipe", args.output_dir)
        return
    data.check(rows, model.sizes)
    mine = part(rows.channel)
    folder = channel(rows.channel).folder
    for path in rows.files()[mine.index :: mine.count]:
        infer(model, rows, path, os.path.relpath(path, folder), args.output_dir)


def export_task(args):
    """Make a SavedModel of a checkpoint."""
    if not first():
        return
    model = earlier(args)
    if model.model is None:
        raise SystemExit(f"deepfm: nothing to export: {model.where} is a SavedModel already; wanted a checkpoint")
    save(model.model, Path(args.model_dir) / "1", model.sizes)


def tell_evaluation(predict, rows, sizes):
    auc, seen, loss = evaluate(predict, rows, sizes)
    say(f"evaluation auc={auc:.4f} rows={seen} logloss={loss:.4f}")  # of rows that training has not seen


def evaluate(predict, rows, sizes=Sizes()):  # noqa: B008  (it is frozen)
    """Return (area under the ROC curve, rows, log loss). The curve has 2,000 points: Keras's 200 are too coarse."""
    auc, loss = tf.keras.metrics.AUC(num_thresholds=2000), tf.keras.metrics.BinaryCrossentropy()
    seen = 0
    for features, labels in data.batches(rows, batch_size=1000, sizes=sizes):
        clicks = predict(features)
        auc.update_state(labels, clicks)
        loss.update_state(labels[:, None], clicks[:, None])
        seen += len(labels)
    return float(auc.result()), seen, float(loss.result())


def infer(model, rows, path, name, output_dir):
    """Write one probability per line, in the order of the rows, to probabilities/NAME.txt; whole or not at all."""
    target = Path(output_dir) / "probabilities" / f"{name}.txt"
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f".{target.name}.tmp")
    seen = 0
    with unfinished.open("w") as file:
        for features in data.unlabelled_batches(rows, path, sizes=model.sizes):
            clicks = model.predict(features).numpy()
            file.writelines(f"{click:.6g}\n" for click in clicks)
            seen += len(clicks)
    unfinished.replace(target)
    print(f"deepfm: inferred rows={seen} of {name} to {target}", flush=True)


if __name__ == "__main__":
    main()
