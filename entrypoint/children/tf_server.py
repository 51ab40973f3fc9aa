"""One TensorFlow server, as the task that TF_CONFIG names. Runs until it is ended."""

import contextlib
import json
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")

import tensorflow as tf

# Where a script keeps checkpoints in S3, the servers write their parts there, too. TensorFlow 1 did so by itself.
with contextlib.suppress(
    ImportError, NotImplementedError, tf.errors.OpError
):  # there is none, or of another TensorFlow
    import tensorflow_io  # noqa: F401

config = json.loads(os.environ["TF_CONFIG"])
task = config["task"]
session = tf.compat.v1.ConfigProto()
if task["type"] == "ps":
    session.device_count["GPU"] = 0
elif '"Pipe"' in os.environ.get("ENTRYPOINT_SHARDS", ""):
    # A dataset that the chief makes of a Pipe mode channel is read here, by the operator if there is one.
    with contextlib.suppress(ImportError, AttributeError, tf.errors.OpError):
        import sagemaker_tensorflow  # noqa: F401
    with contextlib.suppress(ImportError):
        import sagemaker_tf_data

        try:
            sagemaker_tf_data.serve_pipes()
        except sagemaker_tf_data.DataError as error:  # the operator may read them all the same
            print(error, flush=True)
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
