"""What a model is for: it is judged by rows that it has not learned from, and foretells the clicks of others."""

import os
from pathlib import Path

import tensorflow as tf

import data
import kept
from sagemaker_tf_data import part
from settings import Sizes


def first():
    """Return whether this process does what only one is to do."""
    return os.environ.get("OMPI_COMM_WORLD_RANK", "0") == "0"


def eval_task(args):
    """Judge a model of an earlier job by the evaluation channel, or else by the training channel's last file."""
    if not first():
        return
    model = kept.earlier(args)
    rows = data.for_evaluation() or data.split()[1]
    data.check(rows, model.sizes)
    tell_evaluation(model.predict, rows, model.sizes)


def infer_task(args):
    """Foretell clicks: write a file of probabilities for each file of rows. Ranks of Horovod share the files."""
    rows = data.for_inference()
    model = kept.earlier(args)
    if rows.pipe:
        if not data.is_whole(rows):
            raise SystemExit(f"deepfm: each process has a part of channel '{rows.channel}' only: wanted File mode")
        if first():
            infer(model, rows, None, f"{rows.channel}.pipe", args.output_dir)
        return
    data.check(rows, model.sizes)
    mine = part(rows.channel)
    folder = data.folder_of(rows)
    for path in rows.files()[mine.index :: mine.count]:
        infer(model, rows, path, os.path.relpath(path, folder), args.output_dir)


def export_task(args):
    """Make a SavedModel of a checkpoint."""
    if not first():
        return
    model = kept.earlier(args)
    if model.model is None:
        raise SystemExit(f"deepfm: nothing to export: {model.where} is a SavedModel already; wanted a checkpoint")
    kept.save(model.model, Path(args.model_dir) / "1", model.sizes)


def tell_evaluation(predict, rows, sizes):
    auc, seen, loss = evaluate(predict, rows, sizes)
    kept.say(f"evaluation auc={auc:.4f} rows={seen} logloss={loss:.4f}")  # of rows that training has not seen


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
