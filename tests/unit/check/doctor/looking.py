"""Run `entrypoint doctor` on a request and a script of a few lines."""

import copy
import json
from pathlib import Path
from typing import Any

from entrypoint.check.doctor.doctor import Report, examine

IMAGE = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/my-training:2.14.1-cpu-py311"
# Nothing is amiss with these.
REQUEST: dict[str, Any] = {
    "TrainingJobName": "job",
    "AlgorithmSpecification": {"TrainingImage": IMAGE, "TrainingInputMode": "File"},
    "RoleArn": "arn:aws:iam::123456789012:role/Training",
    "HyperParameters": {"sagemaker_program": "train.py", "sagemaker_submit_directory": "s3://bucket/source.tar.gz"},
    "Environment": {},
    "InputDataConfig": [
        {
            "ChannelName": "training",
            "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://bucket/rows/"}},
        }
    ],
    "OutputDataConfig": {"S3OutputPath": "s3://bucket/out"},
    "ResourceConfig": {"InstanceType": "ml.c5.xlarge", "InstanceCount": 1, "VolumeSizeInGB": 30},
    "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
}
SCRIPT = """
import argparse
import os
import signal

import tensorflow as tf
from sagemaker_tf_data import checkpoints, file_names, shard

signal.signal(signal.SIGTERM, lambda *_: stop())
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=1)
args = parser.parse_args()
rows = shard(file_names("training")).batch(32).take(10)
model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
saver = checkpoints.manager(tf.train.Checkpoint(model=model))
saver.restore()
model.compile("sgd", "mse")
model.fit(rows, epochs=args.epochs)
saver.save()
model.save(os.path.join(os.environ["SM_MODEL_DIR"], "1"))
"""
HOROVOD = """
import os
import signal

import horovod.tensorflow.keras as hvd
import tensorflow as tf
from sagemaker_tf_data import checkpoints, end_together, file_names, pin_gpu, shard

signal.signal(signal.SIGTERM, lambda *_: stop())
hvd.init()
pin_gpu()
rows = end_together(shard(tf.data.TFRecordDataset(file_names("training"))).batch(32))
model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.01 * hvd.size()))
saver = checkpoints.manager(tf.train.Checkpoint(model=model))
saver.restore()
model.compile(optimizer, "mse")
model.fit(rows, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
saver.save()
if hvd.rank() == 0:
    model.save(os.path.join(os.environ["SM_MODEL_DIR"], "1"))
"""
WORKERS = """
import os
import signal
import tempfile

import tensorflow as tf
from sagemaker_tf_data import checkpoints, file_names, shard

signal.signal(signal.SIGTERM, lambda *_: stop())
strategy = tf.distribute.MultiWorkerMirroredStrategy()
rows = shard(file_names("training")).batch(32 * strategy.num_replicas_in_sync)
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    saver = checkpoints.manager(tf.train.Checkpoint(model=model))
    saver.restore()
model.fit(rows)
saver.save()
is_chief = strategy.cluster_resolver.task_id == 0
folder = os.path.join(os.environ["SM_MODEL_DIR"], "1") if is_chief else tempfile.mkdtemp()
model.save(folder)
"""
SERVERS = """
import os
import signal

import tensorflow as tf
from sagemaker_tf_data import checkpoints

signal.signal(signal.SIGTERM, lambda *_: stop())
resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if resolver.task_type == "worker":
    tf.distribute.Server(resolver.cluster_spec(), job_name="worker", task_index=resolver.task_id).join()
strategy = tf.distribute.ParameterServerStrategy(resolver)
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
saver = checkpoints.manager(tf.train.Checkpoint(model=model))
saver.restore()
model.fit(tf.keras.utils.experimental.DatasetCreator(rows), steps_per_epoch=10)
saver.save()
model.save(os.path.join(os.environ["SM_MODEL_DIR"], "1"))
"""
MPI = {"Environment": {"ENTRYPOINT_MODE": "mpi"}, "ResourceConfig": {"InstanceCount": 2}}
MWMS = {"Environment": {"ENTRYPOINT_MODE": "mwms"}, "ResourceConfig": {"InstanceCount": 2}}
PS = {"Environment": {"ENTRYPOINT_MODE": "ps"}, "ResourceConfig": {"InstanceCount": 2}}


def merged(base: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """Return a request with other values; None takes a key away."""
    made = copy.deepcopy(base)
    for key, value in change.items():
        if isinstance(value, dict) and isinstance(made.get(key), dict):
            made[key] = merged(made[key], value)
        elif value is None:
            made.pop(key, None)
        else:
            made[key] = value
    return made


def look(
    folder: Path, script: str = "", change: dict[str, Any] | None = None, requirements: str = "", **options: Any
) -> Report:
    """Examine a script, the standard request with a change, or both. A change of {} is the request as it stands."""
    files = []
    if change is not None:
        path = folder / "request.json"
        path.write_text(json.dumps(merged(REQUEST, change), indent=1))
        files.append(str(path))
    if script:
        path = folder / "train.py"
        path.write_text(script)
        files.append(str(path))
    if requirements:
        (folder / "requirements.txt").write_text(requirements)
    return examine(files, **options)


def found(report: Report, check: str) -> list[tuple[str, int]]:
    """Return (severity, line) of each finding of a check."""
    return [(str(each.severity), each.place.line) for each in report.findings if each.check == check]
