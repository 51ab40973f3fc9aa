"""Trains ResNet-50, or another of Keras's networks, on images: with Horovod on many ranks, or alone.

The recipe is that of Goyal et al., "Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour", 2017: a learning rate
in proportion to the images of a step, warmed up, weight decay on kernels only, the last batch normalization of every
block starting at zero.
"""

import argparse
import collections
import math
import os
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read when TensorFlow is imported: warnings and worse

import horovod.tensorflow as hvd
import tensorflow as tf

import images
import speed
from sagemaker_tf_data import checkpoints, end_together, first_of, pin_gpu
from schedule import learning_rate
from settle import make_settle

# Pixels of ImageNet: mean and standard deviation of red, green and blue. Near enough for any photographs.
MEAN, DEVIATION = (123.68, 116.28, 103.53), (58.40, 57.12, 57.38)
# Gradients in 16 bits are multiplied by this, or the small ones would become zero.
LOSS_SCALE = 128.0


def main():
    args = parse_args()
    start_horovod(args)
    tf.keras.mixed_precision.set_global_policy(args.precision)
    model = build(args)
    # Compiling its few operations for every single weight takes longer than they do.
    sgd = tf.keras.optimizers.SGD(args.learning_rate, momentum=args.momentum, jit_compile=False)
    sgd.build(model.trainable_variables)
    if args.synthetic:
        benchmark(model, sgd, args)
    else:
        train(model, sgd, args)


def parse_args():
    parser = argparse.ArgumentParser(allow_abbrev=False)

    def add(name, default, help, **kind):  # SageMaker's users write either
        spellings = dict.fromkeys([name, name.replace("-", "_")])
        parser.add_argument(*(f"--{s}" for s in spellings), default=default, type=type(default), help=help, **kind)

    add("model", "ResNet50", "a function of tf.keras.applications")
    add("classes", 1000, "how many")
    add("format", "auto", "of the data: auto is as files are called", choices=["auto", "tfrecord", "rec"])
    add("first-label", 0, "number of the first class in the files; 1 in ImageNet's usual ones")
    add("image-size", 224, "pixels of a side, as the network sees them")
    add("batch-size", 64, "images per step and rank")
    add("epochs", 90, "passes over the images")
    add("images", 0, "images of an epoch over all ranks; 0: all, which are counted, and Pipe mode cannot")
    add("shuffle", 4096, "images among which the next is drawn")
    add("learning-rate", 0.1, "for 256 images in a step; scaled to those that there are")
    add("warmup-epochs", 5.0, "until the learning rate of all ranks; it begins with that of one")
    add("schedule", "step", "what follows the warm-up", choices=["step", "cosine"])
    add("momentum", 0.9, "of SGD")
    add("settle-batches", 0, "the averages of batch normalizations are taken anew from so many batches of each epoch")
    add("weight-decay", 1e-4, "L2, on kernels")
    add("label-smoothing", 0.1, "share of the label that goes to all classes")
    add("precision", "float32", "of the network", choices=["float32", "mixed_float16", "mixed_bfloat16"])
    add("compression", "none", "of gradients on their way", choices=["none", "fp16"])
    add("fusion-threshold-mb", -1.0, "gradients that are sent at once; 0: each for itself; -1: Horovod's default, 128")
    add("cycle-time-ms", -1.0, "how long gradients are gathered; -1: Horovod's default, 1")
    add("groups", 0, "gradients are sent in so many groups, whatever the cycle; 0: as they come")
    add("skip-steps", 5, "steps that are not measured")
    add("steps", 20, "steps that are measured with --synthetic, for each number of ranks")
    parser.add_argument(
        "--synthetic",
        nargs="?",  # as a hyperparameter it comes with a value
        const=True,
        default=False,
        type=lambda text: text.lower() != "false",
        help="no data: measure how fast one rank, two, four ... and all learn from noise",
    )
    # Not an argument: SageMaker's SDK sends a `--model_dir` of its own, which is an address in S3.
    parser.set_defaults(model_dir=os.environ.get("SM_MODEL_DIR", "/opt/ml/model"))
    args, _ = parser.parse_known_args()
    if not 0 <= args.warmup_epochs < args.epochs:
        parser.error(
            f"warmup-epochs is {args.warmup_epochs:g}; wanted 0 or more, and fewer than the {args.epochs} epochs"
        )
    return args


def start_horovod(args):
    # Horovod reads these when it starts, in every rank; an argument is the same on all of them.
    if args.fusion_threshold_mb >= 0:
        os.environ["HOROVOD_FUSION_THRESHOLD"] = str(int(args.fusion_threshold_mb * 2**20))
    if args.cycle_time_ms >= 0:
        os.environ["HOROVOD_CYCLE_TIME"] = str(args.cycle_time_ms)
    world = int(os.environ.get("OMPI_COMM_WORLD_SIZE", "1"))
    sizes = [2**power for power in range(world.bit_length()) if 2**power < world] if args.synthetic else []
    args.process_sets = [hvd.ProcessSet(range(size)) for size in sizes]
    hvd.init(process_sets=args.process_sets)
    args.process_sets.append(hvd.global_process_set)

    pin_gpu()


# ---- the network and its step --------------------------------------------------------------------------------------


def build(args):
    """Return the network, from pixels as bytes to logits."""
    network = getattr(tf.keras.applications, args.model)(
        weights=None,
        classes=args.classes,
        classifier_activation=None,
        input_shape=(args.image_size, args.image_size, 3),
    )
    for layer in network.layers:
        if isinstance(layer, tf.keras.layers.BatchNormalization):
            layer.momentum = 0.9
            if layer.name.endswith("_3_bn"):  # the last of a block: each block begins as if it were not there
                layer.gamma.assign(tf.zeros_like(layer.gamma))
    pixels = tf.keras.Input([args.image_size, args.image_size, 3], dtype=tf.uint8, name="image")
    scaled = tf.keras.layers.Normalization(mean=MEAN, variance=[x**2 for x in DEVIATION])(pixels)
    return tf.keras.Model(pixels, network(scaled), name=args.model.lower())


def make_step(model, sgd, args, ranks=hvd.global_process_set):
    """Return a function that learns from a batch, together with the set's other ranks, and returns this rank's loss."""
    scale = LOSS_SCALE if "float16" in args.precision or args.compression == "fp16" else 1.0
    loss_of = tf.keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=args.label_smoothing)
    weights = model.trainable_variables

    @tf.function
    def step(pixels, labels, learning_rate):
        with tf.GradientTape() as tape:
            logits = tf.cast(model(pixels, training=True), tf.float32)
            loss = loss_of(tf.one_hot(labels, args.classes), logits)
            scaled = loss * scale
        gradients = [gradient / scale for gradient in exchange(tape.gradient(scaled, weights), args, ranks)]
        for index, weight in enumerate(weights):
            if len(weight.shape) > 1:  # kernels, not biases or batch normalizations
                gradients[index] += args.weight_decay * weight
        sgd.learning_rate.assign(learning_rate)
        sgd.apply_gradients(zip(gradients, weights, strict=True))
        return loss

    return step


def exchange(gradients, args, ranks):
    """Return the mean of all ranks' gradients, each sent as soon as the step has it.

    hvd.DistributedGradientTape does this, too, but with a branch in the graph for every gradient, for clusters that
    grow and shrink: that takes seconds more until the first step.
    """
    how = {"compression": getattr(hvd.Compression, args.compression), "process_set": ranks}
    if ranks.size() == 1:
        return gradients
    if not args.groups:
        return [hvd.allreduce(gradient, **how) for gradient in gradients]
    length = math.ceil(len(gradients) / args.groups)
    groups = [gradients[start : start + length] for start in range(0, len(gradients), length)]
    return [mean for group in groups for mean in hvd.grouped_allreduce(group, **how)]


# ---- training ------------------------------------------------------------------------------------------------------


def train(model, sgd, args):
    training = first_of("training", "train") or "training"  # the latter for an error that names what there is
    validation = first_of("validation", "evaluation", "eval", "test")
    images_per_step = args.batch_size * hvd.size()
    steps = args.images // images_per_step if args.images else images.steps(training, args)
    if not steps:
        raise SystemExit(
            f"resnet: found too few images for one step of {hvd.size()} x {args.batch_size}; lower batch-size"
        )
    say(
        f"{args.model} on {hvd.size()} ranks, {args.batch_size} images of {args.image_size} x {args.image_size} each "
        f"per step, {steps} steps per epoch"
    )

    done = tf.Variable(0, dtype=tf.int64, trainable=False, name="epochs")
    saver = checkpoints.manager(tf.train.Checkpoint(model=model, sgd=sgd, done=done))
    resumed = saver.restore()
    if resumed:
        say(f"resumed after epoch {int(done)} from {resumed}")
    # Checkpoints may lie on the first host only; and without any, ranks have begun with different weights.
    hvd.broadcast_variables([*model.variables, *sgd.variables, done], root_rank=0)

    step, judge, watch = make_step(model, sgd, args), make_judge(model, args), speed.Stopwatch(args.skip_steps)
    settle = make_settle(model)
    batches = images.training_batches(training, args).take(steps)
    if args.images:  # as many as were said: a rank that goes on after another has no more would wait for it for ever
        batches = end_together(batches)
    for epoch in range(int(done), args.epochs):
        began, losses, last = time.monotonic(), [], collections.deque(maxlen=args.settle_batches)
        watch.began()
        for pixels, labels in batches:
            watch.arrived()
            rate = learning_rate(epoch + len(losses) / steps, args, hvd.size())
            losses.append(float(step(pixels, labels, tf.constant(rate, tf.float32))))
            last.append(pixels)
            watch.ended()
        if not losses:
            raise SystemExit("resnet: a rank has no full batch of images; lower batch-size, or see to even shards")
        seconds = time.monotonic() - began
        if last:
            settle(last)
        average_over_ranks(model.non_trainable_variables)
        loss = float(hvd.allreduce(tf.constant(sum(losses) / len(losses)), name="loss"))
        say(
            f"epoch={epoch + 1} steps={len(losses)} loss={loss:.4f} learning_rate={rate:.4f} seconds={seconds:.1f} "
            f"images_per_second={len(losses) * images_per_step / seconds:.1f}"
        )
        if validation:
            judge(validation)
        done.assign(epoch + 1)
        saver.save(epoch + 1)

    report_speed(watch, args)
    if hvd.rank() == 0:
        save(model, Path(args.model_dir) / "1", args)  # TensorFlow Serving wants a version number for a name


def average_over_ranks(variables):
    """Replace the moving averages of batch normalizations on each rank by the mean of all ranks."""
    for variable, mean in zip(variables, hvd.grouped_allreduce(variables, name="averages"), strict=True):
        variable.assign(mean)


def make_judge(model, args):
    """Return a function that evaluates on a channel."""

    @tf.function(
        input_signature=[tf.TensorSpec([None, *model.input_shape[1:]], tf.uint8), tf.TensorSpec([None], tf.int64)]
    )
    def count(pixels, labels):
        logits = tf.cast(model(pixels, training=False), tf.float32)
        hits = [tf.math.in_top_k(labels, logits, k) for k in (1, min(5, args.classes))]
        return tf.stack([tf.reduce_sum(tf.cast(hit, tf.int64)) for hit in hits] + [tf.size(labels, tf.int64)])

    def judge(channel):
        """Evaluate on this rank's part. Ranks exchange only sums, so parts may differ in size."""
        counts = tf.zeros([3], tf.int64)
        for pixels, labels in images.evaluation_batches(channel, args):
            counts += count(pixels, labels)
        top1, top5, seen = map(int, hvd.allreduce(counts, op=hvd.Sum, name="counts"))
        say(f"validation accuracy={top1 / seen:.4f} top5={top5 / seen:.4f} images={seen}")

    return judge


def report_speed(watch, args):
    figures = hvd.allgather_object((this_host(), watch.figures(args.batch_size)))
    if not all(mine for _, mine in figures):
        say(f"no step was measured: all ended within the first {args.skip_steps}")
        return
    for line in speed.table_of_ranks(figures):
        say(line)
    report_total(hvd.size(), sum(mine["images per second"] for _, mine in figures))


def report_total(ranks, images_per_second):
    say(f"speed ranks={ranks} images_per_second={images_per_second:.1f} per_rank={images_per_second / ranks:.1f}")


def save(model, folder, args):
    """Save a SavedModel with one signature: files of images in (JPEG or PNG), the class and all probabilities out."""

    def serve(image):
        pixels = tf.map_fn(
            lambda data: images.center_crop(data, args.image_size),
            image,
            fn_output_signature=tf.TensorSpec([args.image_size, args.image_size, 3], tf.uint8),
        )
        probabilities = tf.nn.softmax(tf.cast(model(pixels, training=False), tf.float32))
        return {"label": tf.argmax(probabilities, axis=1), "probabilities": probabilities}

    archive = tf.keras.export.ExportArchive()
    archive.track(model)
    archive.add_endpoint("serving_default", serve, input_signature=[tf.TensorSpec([None], tf.string, name="image")])
    archive.write_out(str(folder))
    say(f"saved {folder}")


# ---- measuring without data ----------------------------------------------------------------------------------------


def benchmark(model, sgd, args):
    """Train on noise with the first rank, the first two, four ... and all; the other ranks wait."""
    shape = [args.batch_size, args.image_size, args.image_size, 3]
    pixels = tf.cast(tf.random.uniform(shape, maxval=256, dtype=tf.int32), tf.uint8)
    labels = tf.random.uniform([args.batch_size], maxval=args.classes, dtype=tf.int64)
    hvd.broadcast_variables([*model.variables, *sgd.variables], root_rank=0)

    rows = []
    for ranks in args.process_sets:
        mine = None
        if ranks.included():
            watch, step = speed.Stopwatch(args.skip_steps), make_step(model, sgd, args, ranks)
            watch.began()
            for _ in range(args.skip_steps + args.steps):
                watch.arrived()
                float(step(pixels, labels, tf.constant(0.0)))
                watch.ended()
            mine = watch.figures(args.batch_size)["median"]
        found = [(host, median) for host, median in hvd.allgather_object((this_host(), mine)) if median]
        rows.append((len(found), len({host for host, _ in found}), args.batch_size, [median for _, median in found]))

    weights = [math.prod(weight.shape) for weight in model.trainable_variables]
    say(
        f"{args.model}, {args.batch_size} images of {args.image_size} x {args.image_size} per rank and step, "
        f"{args.precision}; {4 * sum(weights) / 1e6:.0f} MB of gradients in {len(weights)} tensors, "
        f"compression {args.compression}; medians of {args.steps} steps after {args.skip_steps}"
    )
    for line in speed.table_of_scaling(rows):
        say(line)
    ranks, _, batch_size, medians = rows[-1]
    report_total(ranks, sum(batch_size / median for median in medians))


def this_host():
    return os.environ.get("SM_CURRENT_HOST", "localhost")


def say(text):
    if hvd.rank() == 0:  # what all ranks know, one says
        print(f"resnet: {text}", flush=True)


if __name__ == "__main__":
    main()
