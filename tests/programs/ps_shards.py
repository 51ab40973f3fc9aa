"""Make every worker server read its shard of records and of files twice, as a ClusterCoordinator's chief.

Each dataset function is traced here, on the chief, and runs there. It writes the records of each worker, and saves a
checkpoint of variables on the parameter servers.
"""

import json
import os
import sys
from pathlib import Path

import tensorflow as tf

from sagemaker_tf_data import DataError, checkpoints, file_names, files, part, shard

config = json.loads(os.environ["TF_CONFIG"])
workers = len(config["cluster"]["worker"])
strategy = tf.distribute.experimental.ParameterServerStrategy(tf.distribute.cluster_resolver.TFConfigClusterResolver())
coordinator = tf.distribute.experimental.coordinator.ClusterCoordinator(strategy)
RECORDS = 101  # no multiple of anything


def of_records():
    return shard(tf.data.Dataset.range(RECORDS), "train").batch(RECORDS)


def of_files():
    lines = shard(file_names("train", "*.txt"), "train").flat_map(tf.data.TextLineDataset)
    return lines.map(lambda line: tf.strings.to_number(line, tf.int64)).batch(RECORDS)


def asks_on_the_chief():
    return tf.data.Dataset.from_tensor_slices(files("train", "*.txt"))


def read_by_all(dataset):
    """Return the sorted records of each worker. Steps go to any free worker, so repeat them until each had one."""
    read = set()
    iterator = iter(coordinator.create_per_worker_dataset(dataset))

    @tf.function
    def step(iterator):
        return next(iterator)

    for _ in range(100):
        values = [coordinator.schedule(step, args=(iterator,)) for _ in range(workers)]
        coordinator.join()
        read |= {tuple(int(number) for number in value.fetch()) for value in values}
        if len(read) == workers:
            break
    return sorted(read)


told = {
    "traced": read_by_all(lambda: of_records().repeat()),
    "eager": read_by_all(of_records().repeat()),
    "files": read_by_all(lambda: of_files().repeat()),
    "chief": vars(part("train")),
    "chief reads": len(list(of_records().unbatch())),
}
try:
    coordinator.create_per_worker_dataset(asks_on_the_chief)
    told["files()"] = "no error"
except DataError as error:
    told["files()"] = str(error)

with strategy.scope():
    table = tf.Variable(tf.range(10.0))
saver = checkpoints.manager(tf.train.Checkpoint(table=table), Path(os.environ["SM_MODEL_DIR"]) / "checkpoints")
saved = saver.save()
table.assign(tf.zeros(10))
told["checkpoint"] = [saved == saver.restore(), float(tf.reduce_sum(table.read_value())), table.device]
Path(os.environ["SM_OUTPUT_DATA_DIR"], "read.json").write_text(json.dumps(told))
print("told", told, file=sys.stderr, flush=True)
