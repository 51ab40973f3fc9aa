"""Read the channels `--names` three times, sharded, and write their numbers: {name: [those of pass 0, ...]}.

Every process reads its own part. With a ClusterCoordinator, the chief makes the workers read and writes the result.
"""

import argparse
import json
import os
from pathlib import Path

import tensorflow as tf

import sagemaker_tf_data as data
from sagemaker_tf_data import in_graph
from sagemaker_tf_data.pipe import pipe_dataset

PASSES = 3
MOST = 1000  # records of a pass


def numbers(name: str) -> tf.data.Dataset:
    """Return the records of this process's part, as numbers. Each iteration is a pass."""
    one = next(each for each in data.all_channels().values() if each.name.startswith(name))
    if one.mode == "Pipe":
        records = pipe_dataset(name, "RecordIO" if one.record_wrapper == "RecordIO" else "TFRecord")
    else:
        records = tf.data.TFRecordDataset(data.file_names(name))
    return data.shard(records, name).map(lambda record: tf.strings.to_number(record, tf.int64))


def write(found: dict[str, list[list[int]]], who: str) -> None:
    Path(os.environ["SM_OUTPUT_DATA_DIR"], f"numbers-{who}.json").write_text(json.dumps(found))


def read_here(names: list[str]) -> None:
    datasets = {name: numbers(name) for name in names}
    found = {name: [[int(each) for each in dataset] for _ in range(PASSES)] for name, dataset in datasets.items()}
    write(found, os.environ.get("OMPI_COMM_WORLD_RANK") or str(task()["index"]))


def have_workers_read(names: list[str]) -> None:
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    workers = len(resolver.cluster_spec().job_tasks("worker"))

    def passes(name: str) -> tf.data.Dataset:
        """Yield (number of the pass, its records, their reader), then endlessly a marker of the end."""
        no_more = tf.data.Dataset.from_tensors((-1, tf.zeros([0], tf.int64)))
        read = tf.data.Dataset.range(PASSES, output_type=tf.int32).flat_map(
            lambda number: numbers(name).batch(MOST).map(lambda ids: (number, ids))
        )
        return read.concatenate(no_more.repeat()).map(lambda number, ids: (number, ids, in_graph.variable("TF_CONFIG")))

    def read(name: str) -> list[list[int]]:
        iterator = iter(coordinator.create_per_worker_dataset(lambda: passes(name)))
        step = tf.function(lambda iterator: next(iterator))
        found: list[list[int]] = [[] for _ in range(PASSES)]
        finished = set()
        while len(finished) < workers:
            for number, ids, who in coordinator.fetch([coordinator.schedule(step, args=(iterator,)) for _ in range(4)]):
                if number < 0:
                    finished.add(who)
                else:
                    found[number] += ids.tolist()
        return found

    write({name: read(name) for name in names}, "all")


def task() -> dict:
    return json.loads(os.environ["TF_CONFIG"])["task"]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--names", required=True)
    names = parser.parse_args().names.split(",")
    have_workers_read(names) if "TF_CONFIG" in os.environ and task()["type"] == "chief" else read_here(names)


if __name__ == "__main__":
    main()
