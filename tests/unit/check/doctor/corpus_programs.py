"""List whole training programs in the manner of public ones, each with its job and the right findings.

Of each error, and of `attributes-missing`, one that has it, and near misses that do not. Labels are as in
corpus_scripts.py: errors and warnings, but for warnings of NOT_LABELLED.
"""

from dataclasses import dataclass, field
from typing import Any

MPI = {"Environment": {"ENTRYPOINT_MODE": "mpi"}, "ResourceConfig": {"InstanceCount": 2}}
MWMS = {"Environment": {"ENTRYPOINT_MODE": "mwms"}, "ResourceConfig": {"InstanceCount": 2}}
PS = {"Environment": {"ENTRYPOINT_MODE": "ps"}, "ResourceConfig": {"InstanceCount": 2}}
LATER = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/my-training:2.21.0-cpu-py312"
GPU = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/my-training:2.14.1-gpu-py311"


@dataclass(frozen=True, kw_only=True)
class Program:
    """A training script, the change of the standard request that makes its job, and its label."""

    script: str
    change: dict[str, Any] = field(default_factory=dict)
    wanted: set[str] = field(default_factory=set)
    requirements: str = ""
    files: dict[str, str] = field(default_factory=dict)  # beside it


def job(base: dict[str, Any] | None = None, /, *, image: str = "", instance: str = "", **more: Any) -> dict[str, Any]:
    """Return a change of the request: hyperparameters by their names, image and instance type as they are given."""
    made: dict[str, Any] = {**(base or {})}
    if image:
        made["AlgorithmSpecification"] = {"TrainingImage": image}
    if instance:
        made["ResourceConfig"] = {**made.get("ResourceConfig", {}), "InstanceType": instance}
    environment = more.pop("environment", {})
    if environment:
        made["Environment"] = {**made.get("Environment", {}), **environment}
    if more:
        made["HyperParameters"] = {key.replace("_", "-") if key[0] != "_" else key[1:]: more[key] for key in more}
    return made


def pairs(*attributes: str, mode: str = "Pipe", name: str = "train", more: tuple[dict[str, Any], ...] = ()) -> Any:
    """Return a job with an augmented manifest of these attributes in a channel."""
    source = {
        "S3DataType": "AugmentedManifestFile",
        "S3Uri": f"s3://bucket/{name}.manifest",
        "AttributeNames": list(attributes),
    }
    wrapped = {"RecordWrapperType": "RecordIO"} if mode == "Pipe" else {}
    channel = {"ChannelName": name, "InputMode": mode, "DataSource": {"S3DataSource": source}, **wrapped}
    return {"InputDataConfig": [channel, *more]}


MNIST = '''
"""Trains a small network on MNIST, as tutorials for script mode do."""
import argparse
import json
import logging
import os

import numpy as np
import tensorflow as tf

logging.basicConfig(level=logging.INFO)
logger = logging.getLogger(__name__)


class Net(tf.keras.Model):
    def __init__(self, width):
        super().__init__()
        self.flatten = tf.keras.layers.Flatten()
        self.hidden = tf.keras.layers.Dense(width, activation="relu")
        self.out = tf.keras.layers.Dense(10)

    def call(self, x):
        return self.out(self.hidden(self.flatten(x)))


def load(folder, part):
    x = np.load(os.path.join(folder, part, "x.npy"))
    return tf.data.Dataset.from_tensor_slices((x, np.load(os.path.join(folder, part, "y.npy"))))


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    OPTIONS
    parser.add_argument("--model-dir", type=str, default=os.environ.get("SM_MODEL_DIR"))
    parser.add_argument("--training", type=str, default=os.environ.get("SM_CHANNEL_TRAINING"))
    PARSED


def main(args):
    logger.info("arguments: %s", json.dumps(vars(args)))
    model = Net(args.width)
    model.compile(args.optimizer, tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(load(args.training, "train").shuffle(1000).batch(args.batch_size), epochs=args.epochs)
    model.save(os.path.join(args.model_dir, "00000001"))


if __name__ == "__main__":
    main(parse())
'''
OPTIONS = """parser.add_argument("--epochs", "-e", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--optimizer", type=str, choices=["sgd", "adam"], default="sgd")"""


def mnist(options: str = OPTIONS, parsed: str = "return parser.parse_args()") -> str:
    return MNIST.replace("OPTIONS", options).replace("PARSED", parsed)


SUBCOMMANDS = '''
"""One program for several steps, of which a job runs one."""
import argparse
import os
import sys

import tensorflow as tf


def train(args):
    model = tf.keras.Sequential([tf.keras.layers.Dense(args.width)])
    model.compile("sgd", "mse")
    model.fit(tf.random.normal([64, 4]), tf.zeros([64, args.width]), epochs=args.epochs)
    model.save(os.path.join(os.environ["SM_MODEL_DIR"], "1"))


def export(args):
    tf.keras.models.load_model(args.source).export(args.target)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--width", type=int, default=8)
    if len(sys.argv) > 1 and sys.argv[1] == "export":
        exporter = argparse.ArgumentParser()
        exporter.add_argument("--source", required=True)
        exporter.add_argument("--target", required=True)
        return export(exporter.parse_args(sys.argv[2:]))
    return train(parser.parse_args())


main()
'''
LOOP = '''
"""A loop of its own over batches, and scikit-learn for the features."""
import os

import numpy as np
import tensorflow as tf
from sklearn.preprocessing import StandardScaler


class Trainer:
    def __init__(self, strategy):
        self.strategy = strategy
        with strategy.scope():
            self.model = tf.keras.Sequential([tf.keras.layers.Dense(16, activation="relu"), tf.keras.layers.Dense(1)])
            self.optimizer = tf.keras.optimizers.SGD(0.01)

    def step(self, x, y):
        with tf.GradientTape() as tape:
            loss = tf.nn.compute_average_loss(tf.square(self.model(x) - y), global_batch_size=64)
        variables = self.model.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return loss

    @tf.function
    def epoch(self, rows):
        total = 0.0
        for x, y in rows:
            total += self.strategy.reduce("SUM", self.strategy.run(self.step, (x, y)), axis=None)
        return total


def features(folder):
    table = np.load(os.path.join(folder, "rows.npy"))
    scaler = StandardScaler()
    scaler.fit(table[:, 1:])
    return scaler.transform(table[:, 1:]).astype("float32"), table[:, :1].astype("float32")


if __name__ == "__main__":
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    rows = tf.data.Dataset.from_tensor_slices(features(os.environ["SM_CHANNEL_TRAINING"])).shuffle(1000).batch(64)
    trainer = Trainer(strategy)
    for epoch in range(5):
        print(f"epoch {epoch} loss={trainer.epoch(strategy.experimental_distribute_dataset(rows))}")
    trainer.model.save(os.path.join(os.environ["SM_MODEL_DIR"], "1.keras"))
'''
FITS = '''
"""The same model, by fit."""
import argparse
import os

import tensorflow as tf

from nets import build


def rows(folder, batch):
    files = tf.data.Dataset.list_files(os.path.join(folder, "*.tfrecord"))
    parsed = {"x": tf.io.FixedLenFeature([8], tf.float32), "y": tf.io.FixedLenFeature([], tf.float32)}

    def of_record(record):
        row = tf.io.parse_single_example(record, parsed)
        return row["x"], row["y"]

    return files.interleave(tf.data.TFRecordDataset).map(of_record).repeat().batch(batch)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=64)
    args, _ = parser.parse_known_args()
    strategy = STRATEGY
    with strategy.scope():
        model = build(8)
    model.fit(rows(os.environ["SM_CHANNEL_TRAINING"], args.batch_size), steps_per_epoch=100, epochs=3)
    model.save(os.path.join(os.environ["SM_MODEL_DIR"], "1"))


if __name__ == "__main__":
    main()
'''
NETS = """
import tensorflow as tf


def build(width):
    model = tf.keras.Sequential([tf.keras.layers.Input([width]), tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model
"""
BY_FIT = FITS.replace("from nets import build", NETS.strip().replace("import tensorflow as tf\n", ""))
MIRRORED = "tf.distribute.MirroredStrategy()"
WORKERS = "tf.distribute.MultiWorkerMirroredStrategy()"
ESTIMATOR = '''
"""A canned Estimator on columns, in the manner of the census tutorial."""
import argparse
import os

import tensorflow as tf

COLUMNS = ["age", "hours", "income"]


def input_fn(folder, batch, repeat):
    def parse(line):
        values = tf.io.decode_csv(line, [[0.0]] * 3)
        return dict(zip(COLUMNS[:2], values[:2])), values[2]

    def make():
        rows = tf.data.TextLineDataset(tf.io.gfile.glob(os.path.join(folder, "*.csv"))).map(parse)
        return rows.shuffle(1000).repeat(repeat).batch(batch)

    return make


def main(args):
    columns = [tf.feature_column.numeric_column(name) for name in COLUMNS[:2]]
    config = tf.estimator.RunConfig(model_dir=args.checkpoints, save_checkpoints_steps=500)
    model = tf.estimator.LinearClassifier(columns, config=config)
    data = os.environ["SM_CHANNEL_TRAINING"]
    TRAINS
    serving = tf.estimator.export.build_raw_serving_input_receiver_fn(
        {name: tf.zeros([1]) for name in COLUMNS[:2]}
    )
    if os.environ["SM_CURRENT_HOST"] == sorted(os.environ["SM_HOSTS"])[0]:
        model.export_saved_model(os.path.join(os.environ["SM_MODEL_DIR"], "1"), serving)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--checkpoints", default="/opt/ml/checkpoints")
    main(parser.parse_known_args()[0])
'''
TRAIN_ALONE = "model.train(input_fn(data, 32, None), max_steps=args.steps)"
TRAIN_AND_EVALUATE = """train = tf.estimator.TrainSpec(input_fn(data, 32, None), max_steps=args.steps)
    tf.estimator.train_and_evaluate(model, train, tf.estimator.EvalSpec(input_fn(data, 32, 1)))"""
SERVERS = '''
"""Wide embeddings on parameter servers, with a coordinator."""
import os

import tensorflow as tf


class Ranker(tf.keras.Model):
    def __init__(self, buckets):
        super().__init__()
        self.hashed = tf.keras.layers.Hashing(buckets)
        self.embed = tf.keras.layers.Embedding(buckets, 16)
        self.out = tf.keras.layers.Dense(1, activation="sigmoid")

    def call(self, x):
        return self.out(tf.reduce_mean(self.embed(self.hashed(x)), axis=1))


def dataset_fn(context):
    words = tf.data.Dataset.from_tensor_slices([["a", "b"], ["c", "d"]])
    return words.shard(context.num_input_pipelines, context.input_pipeline_id).repeat().batch(8)


def main():
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type in ("worker", "ps"):
        tf.distribute.Server(
            resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id, protocol="grpc"
        ).join()
    strategy = tf.distribute.ParameterServerStrategy(
        resolver, variable_partitioner=tf.distribute.experimental.partitioners.MinSizePartitioner(max_shards=2)
    )
    with strategy.scope():
        model = Ranker(1000)
        optimizer = OPTIMIZER
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)

    @tf.function
    def step(iterator):
        def of_replica(words):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(model(words))
            variables = model.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
            return loss

        return strategy.run(of_replica, (next(iterator),))

    rows = iter(coordinator.create_per_worker_dataset(lambda: strategy.distribute_datasets_from_function(dataset_fn)))
    for _ in range(100):
        coordinator.schedule(step, args=(rows,))
    coordinator.join()
    model.save(os.path.join(os.environ["SM_MODEL_DIR"], "1"))


if __name__ == "__main__":
    main()
'''
HOROVOD = '''
"""ResNet with Horovod, as its own examples have it."""
import argparse
import os

import horovod.tensorflow.keras as hvd
import tensorflow as tf
from sagemaker_tf_data import end_together, file_names, shard


def set_up():
    hvd.init()
    PIN
    tf.random.set_seed(17 + hvd.rank())


def rows(batch):
    files = tf.data.Dataset.from_tensor_slices(file_names("training"))
    records = shard(files).interleave(tf.data.TFRecordDataset)
    described = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}

    def decode(record):
        row = tf.io.parse_single_example(record, described)
        return tf.image.resize(tf.io.decode_jpeg(row["image"], 3), [224, 224]), row["label"]

    return end_together(records.map(decode).batch(batch))


def main(args):
    set_up()
    model = tf.keras.applications.ResNet50(weights=None, classes=10)
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(args.lr * hvd.size(), momentum=0.9))
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
        hvd.callbacks.LearningRateWarmupCallback(args.lr * hvd.size(), warmup_epochs=3),
    ]
    if hvd.rank() == 0:
        callbacks.append(tf.keras.callbacks.ModelCheckpoint("/opt/ml/checkpoints/{epoch}.h5"))
    model.fit(rows(args.batch), epochs=args.epochs, callbacks=callbacks, verbose=int(hvd.rank() == 0))
    if hvd.rank() == 0:
        model.save(os.path.join(os.environ["SM_MODEL_DIR"], "1"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--lr", type=float, default=0.01)
    main(parser.parse_args())
'''
PINS = """gpus = tf.config.list_physical_devices("GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    if gpus:
        tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")"""
GROWS = """for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)"""
TWO_GPUS = {"AlgorithmSpecification": {"TrainingImage": GPU}}
GUARDED = '''
"""Trains, and tells a chat room how it went."""
import json
import logging
import os
import sys
import traceback
import urllib.request

import tensorflow as tf

log = logging.getLogger("train")
FAILURE = "/opt/ml/output/failure"


def tell(text):
    try:
        body = json.dumps({"text": text}).encode()
        urllib.request.urlopen(os.environ.get("HOOK", "http://localhost"), data=body, timeout=5)
    except Exception:
        log.warning("nobody heard: %s", text)


def train():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(tf.random.normal([64, 4]), tf.zeros([64, 1]), epochs=2)
    return model


def main():
    try:
        model = train()
        model.save(os.path.join(os.environ["SM_MODEL_DIR"], "1"))
        tell("done")
    except Exception as error:
        with open(FAILURE, "w") as file:
            file.write(f"{error}\\n{traceback.format_exc()}")
        tell(f"failed: {error}")
        ENDS


if __name__ == "__main__":
    main()
    sys.exit(0)
'''
READER = '''
"""Reads pairs of pictures and labels from a pipe."""
import argparse
import os

import tensorflow as tf
from sagemaker_tf_data import pipe_dataset, shard

CHANNEL = "train"
SIDE = 64


def decode(image, label):
    picture = tf.image.resize(tf.io.decode_jpeg(image, channels=3), [SIDE, SIDE])
    return picture / 255.0, tf.strings.to_number(label)


class Input:
    def __init__(self, batch):
        self.batch = batch

    def rows(self):
        READS
        return rows.map(DECODE).batch(self.batch).prefetch(2)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=16)
    args = parser.parse_args()
    model = tf.keras.Sequential([tf.keras.layers.Flatten(), tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(Input(args.batch).rows())
    model.save(os.path.join(os.environ["SM_MODEL_DIR"], "1"))


main()
'''
BY_NAME = 'lambda each: decode(each["source-ref"], each["label"])'
BY_PLACE = "lambda pair: decode(pair[0], pair[1])"


def reader(reads: str, decode: str = BY_PLACE) -> str:
    return READER.replace("READS", reads).replace("DECODE", decode)


OTHER = pairs("text", name="words")["InputDataConfig"][0]

PROGRAMS = {
    # --- argument-unknown, argument-missing, argument-refused ---
    "strict, an argument more": Program(
        script=mnist(), change=job(epochs="2", learning_rate="0.1"), wanted={"argument-unknown"}
    ),
    "strict, none more": Program(script=mnist(), change=job(epochs="2", batch_size="16", optimizer='"adam"')),
    "strict, short and shortened": Program(script=mnist(), change=job(e="2", batch="16")),
    "known arguments, one more": Program(
        script=mnist(parsed="args, rest = parser.parse_known_args()\n    print(rest)\n    return args"),
        change=job(epochs="2", learning_rate="0.1"),
    ),
    "options from a loop": Program(
        script=mnist(
            OPTIONS + '\n    for name in ("learning-rate", "decay"):\n'
            '        parser.add_argument(f"--{name}", type=float, default=0.1)'
        ),
        change=job(epochs="2", learning_rate="0.1"),
    ),
    "required, and not there": Program(
        script=mnist(OPTIONS.replace("int, default=1", "int, required=True")),
        change=job(width="64"),
        wanted={"argument-missing"},
    ),
    "required, and there under its short name": Program(
        script=mnist(OPTIONS.replace("int, default=1", "int, required=True")), change=job(e="3")
    ),
    "required, and there shortened": Program(
        script=mnist(OPTIONS.replace("int, default=32", "int, required=True")), change=job(batch="3")
    ),
    "required by another parser": Program(script=SUBCOMMANDS, change=job(epochs="2")),
    "a number with a dot": Program(script=mnist(), change=job(epochs="2.5"), wanted={"argument-refused"}),
    "not of the choices": Program(script=mnist(), change=job(optimizer='"rmsprop"'), wanted={"argument-refused"}),
    "a flag with a value": Program(
        script=mnist(OPTIONS + '\n    parser.add_argument("--fp16", action="store_true")'),
        change=job(fp16="true"),
        wanted={"argument-refused"},
    ),
    "numbers as they may be": Program(
        script=mnist(OPTIONS + '\n    parser.add_argument("--rate", type=float)'),
        change=job(epochs=" 12", rate="1e-3", optimizer="adam", width="1_000"),
    ),
    # --- keras-3-fit ---
    "fit on workers, Keras 3": Program(
        script=BY_FIT.replace("STRATEGY", WORKERS), change=job(MWMS, image=LATER), wanted={"keras-3-fit"}
    ),
    "fit on workers, the model in a module": Program(
        script=FITS.replace("STRATEGY", WORKERS),
        files={"nets.py": NETS},
        change=job(MWMS, image=LATER),
        wanted={"keras-3-fit"},
    ),
    "fit on workers, Keras 2": Program(script=BY_FIT.replace("STRATEGY", WORKERS), change=MWMS),
    "fit on workers, Keras 2 asked for": Program(
        script=BY_FIT.replace("STRATEGY", WORKERS),
        change=job(MWMS, image=LATER, environment={"TF_USE_LEGACY_KERAS": "1"}),
    ),
    "fit on one host, Keras 3": Program(script=BY_FIT.replace("STRATEGY", MIRRORED), change=job(image=LATER)),
    "a loop on workers, and a scaler's fit": Program(script=LOOP, change=job(MWMS, image=LATER)),
    # --- no-strategy ---
    "one host's strategy on two": Program(
        script=BY_FIT.replace("STRATEGY", MIRRORED), change=MWMS, wanted={"no-strategy"}
    ),
    "no Horovod in an MPI job": Program(script=mnist(), change=job(MPI, epochs="2"), wanted={"no-strategy"}),
    "no servers in their job": Program(script=mnist(), change=job(PS, epochs="2"), wanted={"no-strategy"}),
    "the strategy in a module": Program(
        script=FITS.replace("STRATEGY", "chosen()").replace("import build", "import build, chosen"),
        files={"nets.py": NETS + f"\n\ndef chosen():\n    return {WORKERS}\n"},
        change=MWMS,
    ),
    "the strategy by its experimental name": Program(
        script=BY_FIT.replace("STRATEGY", "tf.distribute.experimental.MultiWorkerMirroredStrategy()"), change=MWMS
    ),
    "the strategy of a table": Program(
        script=BY_FIT.replace(
            "STRATEGY",
            "{'mirrored': tf.distribute.MirroredStrategy, 'workers': tf.distribute.MultiWorkerMirroredStrategy}"
            "[os.environ.get('WAY', 'workers')]()",
        ),
        change=MWMS,
    ),
    "servers in a job that starts none": Program(
        script=SERVERS.replace("OPTIMIZER", "'sgd'"),
        change={"Environment": {"ENTRYPOINT_MODE": "single"}, "ResourceConfig": {"InstanceCount": 2}},
        wanted={"strategy-of-another-mode"},
    ),
    # --- estimator-never-ends ---
    "an Estimator trains alone, with servers": Program(
        script=ESTIMATOR.replace("TRAINS", TRAIN_ALONE), change=PS, wanted={"estimator-never-ends"}
    ),
    "an Estimator, and worker servers": Program(
        script=ESTIMATOR.replace("TRAINS", TRAIN_AND_EVALUATE),
        change=job(PS, environment={"ENTRYPOINT_PS_WORKERS": "server"}),
        wanted={"estimator-never-ends"},
    ),
    "an Estimator as it should be": Program(script=ESTIMATOR.replace("TRAINS", TRAIN_AND_EVALUATE), change=PS),
    "an Estimator alone on one host": Program(script=ESTIMATOR.replace("TRAINS", TRAIN_ALONE)),
    # --- ps-xla ---
    "servers and XLA": Program(
        script=SERVERS.replace("OPTIMIZER", "tf.keras.optimizers.Adagrad(0.1)"),
        change=job(PS, image=GPU, instance="ml.g4dn.xlarge", environment={"ENTRYPOINT_PS_WORKERS": "script"}),
        wanted={"ps-xla"},
    ),
    "servers without XLA": Program(
        script=SERVERS.replace("OPTIMIZER", "tf.keras.optimizers.Adagrad(0.1, jit_compile=False)"),
        change=job(PS, image=GPU, instance="ml.g4dn.xlarge", environment={"ENTRYPOINT_PS_WORKERS": "script"}),
    ),
    "servers and a legacy optimizer": Program(
        script=SERVERS.replace("OPTIMIZER", "tf.keras.optimizers.legacy.Adagrad(0.1)"),
        change=job(PS, image=GPU, instance="ml.g4dn.xlarge"),
    ),
    "servers on CPUs": Program(script=SERVERS.replace("OPTIMIZER", "tf.keras.optimizers.Adagrad(0.1)"), change=PS),
    # --- hvd-no-pin, ranks-and-gpus ---
    "ranks that choose no GPU": Program(
        script=HOROVOD.replace("PIN", GROWS),
        change=job(MPI, image=GPU, instance="ml.g4dn.12xlarge"),
        wanted={"hvd-no-pin"},
    ),
    "ranks that choose one": Program(
        script=HOROVOD.replace("PIN", PINS), change=job(MPI, image=GPU, instance="ml.g4dn.12xlarge")
    ),
    "the launcher chooses": Program(
        script=HOROVOD.replace("PIN", GROWS),
        change=job(MPI, image=GPU, instance="ml.g4dn.12xlarge", environment={"ENTRYPOINT_PIN_GPUS": "always"}),
    ),
    "ranks on CPUs": Program(script=HOROVOD.replace("PIN", "pass"), change=MPI),
    "more ranks than GPUs": Program(
        script=HOROVOD.replace("PIN", PINS),
        change=job(MPI, image=GPU, instance="ml.g4dn.12xlarge", environment={"ENTRYPOINT_PROCESSES_PER_HOST": "8"}),
        wanted={"ranks-and-gpus"},
    ),
    "as many ranks as GPUs": Program(
        script=HOROVOD.replace("PIN", PINS),
        change=job(MPI, image=GPU, instance="ml.g4dn.12xlarge", environment={"ENTRYPOINT_PROCESSES_PER_HOST": "4"}),
    ),
    "more ranks, kept from the GPUs": Program(
        script=HOROVOD.replace("PIN", "pass"),
        change=job(
            MPI,
            image=GPU,
            instance="ml.g4dn.12xlarge",
            environment={"ENTRYPOINT_PROCESSES_PER_HOST": "8", "CUDA_VISIBLE_DEVICES": "-1"},
        ),
    ),
    # --- failure-hidden ---
    "a failure that exits with 0": Program(script=GUARDED.replace("ENDS", "sys.exit(0)"), wanted={"failure-hidden"}),
    "a failure that is told": Program(
        script=GUARDED.replace("ENDS", "traceback.print_exc()").replace(
            "        model = train()\n        model.save", "        model = train()\n        model.save"
        ),
        wanted={"failure-hidden"},
    ),
    "a failure that exits with 255": Program(script=GUARDED.replace("ENDS", "sys.exit(255)")),
    "a failure that is raised again": Program(script=GUARDED.replace("ENDS", "raise")),
    "a failure with a text": Program(script=GUARDED.replace("ENDS", 'sys.exit(f"failed: {error}")')),
    "a failure that is remembered": Program(
        script=GUARDED.replace("ENDS", "failed = True\n    if failed:\n        sys.exit(1)").replace(
            "    try:\n        model = train", "    failed = False\n    try:\n        model = train"
        )
    ),
    "a failure by a function that ends": Program(
        script=GUARDED.replace("ENDS", "give_up(error)").replace(
            "def main():", "def give_up(error):\n    log.error(error)\n    sys.exit(3)\n\n\ndef main():"
        )
    ),
    "a failure of what is not needed": Program(
        script=GUARDED.replace("ENDS", "raise").replace(
            '        tell("done")',
            "        try:\n            model.summary()\n        except Exception:\n            log.error('no summary')",
        )
    ),
    # --- attributes-missing ---
    "pairs, dealt out apart": Program(
        script=reader('rows = shard(pipe_dataset("train", "RecordIO")).batch(2)'),
        change=pairs("source-ref", "label"),
        wanted={"attributes-missing"},
    ),
    "pairs, shuffled apart": Program(
        script=reader('records = pipe_dataset(CHANNEL, "RecordIO")\n        rows = records.shuffle(100).batch(2)'),
        change=pairs("source-ref", "label", more=(OTHER,)),
        wanted={"attributes-missing"},
    ),
    "pairs, of the only channel": Program(
        script=reader('rows = shard(pipe_dataset(os.environ["WHICH"], "RecordIO")).batch(2)'),
        change=pairs("source-ref", "label"),
        wanted={"attributes-missing"},
    ),
    "pairs, under the wrong names": Program(
        script=reader('rows = shard(pipe_dataset("train", "RecordIO", attributes=["label", "source-ref"]))', BY_NAME),
        change=pairs("source-ref", "label"),
        wanted={"attributes-missing"},
    ),
    "pairs, whole": Program(
        script=reader('rows = shard(pipe_dataset("train", "RecordIO", attributes=("source-ref", "label")))', BY_NAME),
        change=pairs("source-ref", "label"),
    ),
    "pairs, by names of the environment": Program(
        script=reader(
            'names = os.environ["NAMES"].split()\n'
            '        rows = shard(pipe_dataset("train", "RecordIO", attributes=names))',
            BY_NAME,
        ),
        change=pairs("source-ref", "label"),
    ),
    "pairs, put together first": Program(
        script=reader('rows = pipe_dataset("train", "RecordIO").batch(2, drop_remainder=True).shard(2, 0)'),
        change=pairs("source-ref", "label"),
    ),
    "pairs, put together first and dealt out": Program(
        script=reader('rows = shard(pipe_dataset("train", "RecordIO").batch(2))'), change=pairs("source-ref", "label")
    ),
    "pairs, put together under a name": Program(
        script=reader('records = pipe_dataset("train", "RecordIO")\n        rows = shard(records.batch(2))'),
        change=pairs("source-ref", "label"),
    ),
    "one attribute": Program(
        script=reader('rows = shard(pipe_dataset("train", "RecordIO"))', "lambda row: decode(row, row)"),
        change=pairs("source-ref"),
    ),
    "a channel of two that nobody can tell": Program(
        script=reader('rows = shard(pipe_dataset(os.environ["WHICH"], "RecordIO")).batch(2)'),
        change=pairs("source-ref", "label", more=(OTHER,)),
    ),
    "pairs, in their order": Program(
        script=reader(
            'records = iter(pipe_dataset("train", "RecordIO"))\n'
            "        rows = tf.data.Dataset.from_generator(lambda: zip(records, records), (tf.string, tf.string))",
            "decode",
        ).replace(".batch(self.batch)", ""),
        change=pairs("source-ref", "label"),
    ),
    "options in a dictionary": Program(
        script=reader(
            'given = {"attributes": ["source-ref", "label"]}\n'
            '        rows = shard(pipe_dataset("train", "RecordIO", **given))',
            BY_NAME,
        ),
        change=pairs("source-ref", "label"),
    ),
    "the other channel": Program(
        script=reader('rows = shard(pipe_dataset("words", "RecordIO"))', "lambda row: decode(row, row)"),
        change=pairs("source-ref", "label", more=(OTHER,)),
    ),
}
# --- entry-missing is of the launch or the request: (program that is asked for, files of its folder, is it missing) ---
ENTRIES = {
    "another name": ("trian.py", {"train.py": mnist(), "requirements.txt": "six\n"}, True),
    "in a folder of the folder": ("train.py", {"training/train.py": mnist(), "utils.py": "SIDE = 28\n"}, True),
    "the name": ("train.py", {"train.py": mnist(), "utils.py": "SIDE = 28\n"}, False),
    "a path in the folder": ("training/train.py", {"training/train.py": mnist(), "setup.cfg": "[metadata]\n"}, False),
}
