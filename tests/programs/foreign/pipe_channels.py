"""Read Pipe mode in the manner of the DeepFM article: names from SM_CHANNELS, a channel for each rank, own shards.

It reads two epochs and writes which records this rank read. One rank of each host reads the first channel, for
evaluation.
"""

import argparse
import json
import os
from pathlib import Path

import horovod.tensorflow as hvd
import tensorflow as tf
from sagemaker_tensorflow import PipeModeDataset

EPOCHS = 2

parser = argparse.ArgumentParser()
parser.add_argument("--model_dir")
parser.add_argument("--worker_per_host", type=int, default=1)
for name in ("--enable_data_multi_path", "--enable_s3_shard"):
    parser.add_argument(name, type=lambda text: text == "True", default=False)
args = parser.parse_args()

hvd.init()
rank, local_rank = hvd.rank(), hvd.local_rank()
hosts = json.loads(os.environ["SM_HOSTS"])
names = json.loads(os.environ["SM_CHANNELS"])
evaluation, training = names[0], names[1:]
channel = training[local_rank]


def part(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Return this rank's part of its channel, for the four cases of the article."""
    if args.enable_data_multi_path and args.enable_s3_shard:
        return dataset
    if args.enable_data_multi_path:
        return dataset.shard(len(hosts), rank // args.worker_per_host)
    if args.enable_s3_shard:
        return dataset.shard(args.worker_per_host, local_rank)
    return dataset.shard(hvd.size(), rank)


def numbers(dataset: tf.data.Dataset) -> list[int]:
    return [int(record.numpy()) for record in dataset]


rows = part(PipeModeDataset(channel, record_format="TFRecord"))
told = {
    "channels": names,
    "channel": channel,
    "epochs": [numbers(rows) for _ in range(EPOCHS)],
    "evaluation": numbers(PipeModeDataset(evaluation, record_format="TFRecord")) if local_rank == 0 else None,
}
Path(os.environ["SM_OUTPUT_DATA_DIR"], f"rank-{rank}.json").write_text(json.dumps(told))
