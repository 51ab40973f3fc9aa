"""One TensorFlow server, as the task that TF_CONFIG names. Runs until it is ended."""

import contextlib
import json
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")

import tensorflow as tf

config = json.loads(os.environ["TF_CONFIG"])
task = config["task"]
session = tf.compat.v1.ConfigProto()
if task["type"] == "ps":
    session.device_count["GPU"] = 0
elif '"Pipe"' in os.environ.get("ENTRYPOINT_SHARDS", ""):
    # The operator for Pipe mode channels: a dataset that the chief makes with it is read here.
    with contextlib.suppress(ImportError, AttributeError, tf.errors.OpError):
        import sagemaker_tensorflow  # noqa: F401
server = tf.distribute.Server(
    tf.train.ClusterSpec(config["cluster"]),
    job_name=task["type"],
    task_index=task["index"],
    protocol="grpc",
    config=session,
    start=True,
)
print(f"serving {task['type']} {task['index']} at {server.target}", flush=True)
server.join()
