"""Trains Mask R-CNN on data in COCO's format: with Horovod on many ranks, or alone, and judges it by COCO's mAP.

He, Gkioxari, Dollár, Girshick, "Mask R-CNN", 2017, on a feature pyramid. docs/maskrcnn.md says how to run it.
"""

import argparse
import os
import signal
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read when TensorFlow is imported: warnings and worse

import numpy as np
import tensorflow as tf

import backbone
import coco
import evaluation
import ranks
from model import MaskRCNN
from sagemaker_tf_data import DataError, channel, checkpoints, first_of
from schedule import learning_rate

KERAS_3 = tf.keras.Model.__module__.startswith("keras.src.models")
# Gradients in 16 bits are multiplied by this, or the small ones would become zero.
LOSS_SCALE = 128.0


def main():
    args = parse_args()
    ranks.start()
    tf.keras.utils.set_random_seed(args.seed + ranks.rank())  # ranks draw different boxes to learn from
    tf.keras.mixed_precision.set_global_policy(args.precision)
    folder = data_folder()
    training, validation = coco.Split(folder, args.training_split), coco.Split(folder, args.validation_split)
    if args.weights and not Path(args.weights).is_absolute():
        args.weights = str(folder / args.weights)
    model = MaskRCNN(len(training.categories), args)
    optimizer = make_optimizer(args)
    optimizer.build(model.learned)  # its variables are there from the start, to be restored
    if train(model, optimizer, training, validation, args):
        figures = judge(model, validation, args)
        if ranks.rank() == 0:
            save(model, training, figures, Path(args.model_dir), args)


def parse_args(argv=None):
    parser = argparse.ArgumentParser(allow_abbrev=False)

    def add(name, default, help, **kind):  # SageMaker's users write either
        spellings = dict.fromkeys([name, name.replace("-", "_")])
        parser.add_argument(*(f"--{s}" for s in spellings), default=default, type=type(default), help=help, **kind)

    add("training-split", "train2017", "images and annotations to learn from")
    add("validation-split", "val2017", "those to judge by")
    add("image-size", 800, "pixels of an image's shorter side")
    add("longest-side", 1333, "no side is longer, which may make the shorter one shorter")
    add("depth", 50, "of the residual network", choices=backbone.DEPTHS)
    add("width", 64, "channels of the first stage, of depths 10, 18 and 34")
    add("weights", "", "Keras's .h5 file of ImageNet weights for depth 50 or 101; a relative path is within the data")
    add("freeze", 2, "with weights: stages up to this do not learn")
    add("channels", 256, "of the feature pyramid")
    add("head-width", 1024, "of the two dense layers of the box head")
    add("mask-convolutions", 4, "of the mask head")
    add("anchor-scale", 8.0, "cells of an anchor's side, on each level")
    add("anchors-per-image", 256, "that the proposal network learns from")
    add("proposals-per-level", 1000, "that are looked at")
    add("proposals", 1000, "that are left of an image's")
    add("regions-per-image", 512, "that the heads learn from, a quarter of them with objects")
    add("detections", 100, "of an image, at most")
    add("least-score", 0.05, "of a detection")
    add("mask-side", 56, "cells of a side of an object's mask, as training keeps it")
    add("batch-size", 2, "images per step and rank")
    add("epochs", 12.0, "passes over the images; parts of one are allowed")
    add("learning-rate", 0.01, "for 8 images in a step; scaled to those that there are")
    add("warmup-epochs", 0.1, "until that learning rate")
    add("schedule", "step", "what follows the warm-up", choices=["step", "cosine"])
    add("optimizer", "sgd", "with momentum; or adam", choices=["sgd", "adam"])
    add("momentum", 0.9, "of SGD")
    add("weight-decay", 1e-4, "L2, on kernels")
    add("clip", 10.0, "the longest gradient; 0: any")
    add("mirror", 1, "half of the images, left to right; 0: none")
    add("precision", "float32", "of the networks", choices=["float32", "mixed_float16", "mixed_bfloat16"])
    add("compression", "none", "of gradients on their way", choices=["none", "fp16"])
    add("checkpoint-steps", 500, "steps between two checkpoints")
    add("evaluate-epochs", 0.0, "epochs between two evaluations; 0: only at the end")
    add("evaluation-images", 0, "of the validation split, at most; 0: all")
    add("log-steps", 20, "steps of a line of the log")
    add("seed", 0, "of weights, order and what is drawn by chance")
    # Not an argument: SageMaker's SDK sends a `--model_dir` of its own, which is an address in S3.
    parser.set_defaults(model_dir=os.environ.get("SM_MODEL_DIR", "/opt/ml/model"))
    args, _ = parser.parse_known_args(argv)
    if args.weights and args.depth not in backbone.KERAS:
        parser.error(f"weights for depth {args.depth}: there are none; wanted depth 50 or 101")
    if not 0 <= args.warmup_epochs < args.epochs:
        parser.error(
            f"warmup-epochs is {args.warmup_epochs:g}; wanted 0 or more, and fewer than the {args.epochs:g} epochs"
        )
    return args


def data_folder():
    """Return the folder of channel `training`, with annotations and images; also with channels for other things."""
    name = first_of("training", "train", "coco") or "training"  # the last for an error that names what there is
    try:
        return channel(name).folder
    except DataError as error:
        raise SystemExit(f"maskrcnn: {error}") from None


def make_optimizer(args):
    # Compiling its few operations for every single weight takes longer than they do. (Keras 3 does not.)
    how = {} if KERAS_3 else {"jit_compile": False}
    if args.optimizer == "adam":
        return tf.keras.optimizers.Adam(args.learning_rate, **how)
    return tf.keras.optimizers.SGD(args.learning_rate, momentum=args.momentum, **how)


# ---- training ------------------------------------------------------------------------------------------------------


def make_step(model, optimizer, args):
    """Return a function that learns from a batch, together with all ranks, and returns this rank's losses by name."""
    scale = LOSS_SCALE if args.precision == "mixed_float16" or args.compression == "fp16" else 1.0
    weights = model.learned

    @tf.function(reduce_retracing=True)
    def step(batch, rate):
        with tf.GradientTape() as tape:
            losses = model.losses(batch)
            total = tf.add_n(list(losses.values()))
            scaled = total * scale
        gradients = ranks.averaging(tape, args.compression).gradient(scaled, weights)
        gradients = [tf.convert_to_tensor(gradient) / scale for gradient in gradients]
        if args.clip:
            gradients, _ = tf.clip_by_global_norm(gradients, args.clip)
        for index, weight in enumerate(weights):
            if len(weight.shape) > 1:  # kernels, not biases or normalizations
                gradients[index] += args.weight_decay * weight
        optimizer.learning_rate.assign(rate)
        optimizer.apply_gradients(zip(gradients, weights, strict=True))
        return {"total_cost": total, **losses}

    return step


def train(model, optimizer, training, validation, args):
    """Train to the end; return True at the end, or False if SIGTERM came first and all was saved."""
    # How many images all ranks have learned from: what a job that goes on with other ranks can make use of.
    seen = tf.Variable(0, dtype=tf.int64, trainable=False, name="images")
    networks = {network.name: network for network in model.networks}
    saver = checkpoints.manager(tf.train.Checkpoint(**networks, optimizer=optimizer, images=seen))
    resumed = saver.restore()
    # Checkpoints may lie on the first host only; and without any, ranks have begun with different weights.
    ranks.broadcast([*model.all_variables, *optimizer.variables, seen])

    images, step_size = len(training.to_learn_from()), args.batch_size * ranks.size()
    begin = int(seen)
    steps = max(-(-(round(args.epochs * images) - begin) // step_size), 0)
    say(
        f"depth {args.depth} on {ranks.size()} ranks, {args.batch_size} images each per step; {images} images of "
        f"{len(training.categories)} classes; {steps} steps to go"
        + (f", resumed behind {begin} images from {resumed}" if resumed else "")
    )
    asked = []
    before = signal.signal(signal.SIGTERM, lambda *_: asked.append(True))
    step, watch = make_step(model, optimizer, args), Watch(args, step_size)
    batches = coco.training_batches(training, args, begin, steps, ranks.rank(), ranks.size())
    every = args.evaluate_epochs * images  # images between two evaluations
    for number, batch in enumerate(batches, 1):
        rate = learning_rate(int(seen) / images, args, ranks.size())
        losses = step(batch, tf.constant(rate, tf.float32))
        seen.assign_add(step_size)
        watch.step(losses, int(seen) / images, rate, last=number == steps)
        # The signal reaches ranks in different steps; all stop behind the same one.
        if ranks.any_of(bool(asked), "asked"):
            break
        judged = every and number < steps and int(seen) // every > (int(seen) - step_size) // every
        if judged or number == steps or number % args.checkpoint_steps == 0:
            save_checkpoint(model, saver, seen)  # judging takes long, and may be cut off
        if judged:
            judge(model, validation, args)
            watch.restart()
    stop = ranks.any_of(bool(asked), "asked")
    if stop:
        save_checkpoint(model, saver, seen)
        say(f"SIGTERM: saved behind {int(seen)} images; a job that starts again goes on from there")
    signal.signal(signal.SIGTERM, before)
    return not stop


def save_checkpoint(model, saver, seen):
    average_over_ranks(model)
    saver.save(int(seen))


def average_over_ranks(model):
    """Replace the moving averages of batch normalizations on each rank by the mean of all ranks."""
    for number, average in enumerate(backbone.moving_averages(model.backbone)):
        average.assign(ranks.mean(tf.convert_to_tensor(average), f"average {number}"))


class Watch:
    """A logger of the training's progress in regular intervals of steps."""

    def __init__(self, args, step_size):
        self.every, self.step_size = args.log_steps, step_size
        self.restart()

    def restart(self):
        """Restart the clock after work that was no training."""
        self.began, self.sums, self.count = time.monotonic(), {}, 0

    def step(self, losses, epochs, rate, last):
        """Record a step; `losses` by name."""
        for name, loss in losses.items():
            self.sums[name] = self.sums.get(name, 0.0) + float(loss)
        self.count += 1
        if self.count < self.every and not last:
            return
        seconds = time.monotonic() - self.began
        means = ranks.mean(tf.constant(list(self.sums.values())) / self.count, "losses").numpy()
        parts = [f"{name}: {mean:.4f}" for name, mean in zip(self.sums, means, strict=True)]
        if not np.isfinite(means).all():
            raise SystemExit(f"maskrcnn: losses are no numbers any more ({', '.join(parts)}); lower the learning-rate")
        say(
            f"epochs={epochs:.3f} {' '.join(parts)} learning_rate={rate:.6f} "
            f"images_per_second={self.count * self.step_size / seconds:.2f}"
        )
        self.restart()


# ---- judging and saving ----------------------------------------------------------------------------------------------


def judge(model, split, args):
    """Print COCO's figures of a split on rank 0 and return them by name; each rank evaluates its share of images."""
    began = time.monotonic()
    average_over_ranks(model)
    images = split.images[: args.evaluation_images or None]
    mine, found = images[ranks.rank() :: ranks.size()], []
    if mine:
        for batch in coco.evaluation_batches(split, args, mine):
            found += evaluation.results(split, batch, model.detect(batch["pixels"], batch["sizes"]))
    found = [each for part in ranks.gather(found) for each in part]
    if ranks.rank() != 0:
        return {}
    figures = evaluation.mean_average_precision(split, found, images)
    for name, figure in figures.items():
        say(f"{name}: {figure:.4f}")
    say(f"judged {len(images)} images, {len(found)} detections, in {time.monotonic() - began:.1f} s")
    return figures


def save(model, split, figures, folder, args):
    """Save as a SavedModel with one signature: files of images in (JPEG or PNG), what is in each of them out."""
    categories = tf.constant(split.categories, tf.int64)
    names = ["boxes", "classes", "scores", "masks", "count"]

    def detect(data):
        pixels, scale, size = coco.fit(data, args)
        found = {name: each[0] for name, each in model.detect(coco.pad(pixels)[None], size[None]).items()}
        y1, x1, y2, x2 = tf.unstack(found["boxes"] / tf.concat([scale, scale], axis=0), axis=1)
        real = tf.range(args.detections) < found["count"]
        found["boxes"] = tf.stack([x1, y1, x2 - x1, y2 - y1], axis=1)  # COCO's order, pixels of the file
        found["classes"] = tf.where(real, tf.gather(categories, found["classes"] - 1), 0)
        masks = tf.where(real[:, None, None], found["masks"], 0.0)
        found["masks"] = tf.saturate_cast(tf.round(255 * masks), tf.uint8)
        return [found[name] for name in names]

    def serve(image):
        side = model.mask_head.output_shape[1]
        count = args.detections
        shapes = {
            "boxes": tf.TensorSpec([count, 4], tf.float32),
            "classes": tf.TensorSpec([count], tf.int64),
            "scores": tf.TensorSpec([count], tf.float32),
            "masks": tf.TensorSpec([count, side, side], tf.uint8),
            "count": tf.TensorSpec([], tf.int32),
        }
        answers = tf.map_fn(detect, image, fn_output_signature=[shapes[name] for name in names])
        return dict(zip(names, answers, strict=True))

    archive = tf.keras.export.ExportArchive()
    for network in model.networks:
        archive.track(network)
    archive.add_endpoint("serving_default", serve, input_signature=[tf.TensorSpec([None], tf.string, name="image")])
    archive.write_out(str(folder / "1"))  # TensorFlow Serving wants a version number for a name
    named = zip(split.categories, split.names(), strict=True)
    (folder / "categories.txt").write_text("".join(f"{category} {name}\n" for category, name in named))
    say(f"saved {folder / '1'}, mAP(segm)={figures['mAP(segm)/IoU=0.5:0.95']:.4f}")


def say(text):
    if ranks.rank() == 0:  # what all ranks know, one says
        print(f"maskrcnn: {text}", flush=True)


if __name__ == "__main__":
    main()
