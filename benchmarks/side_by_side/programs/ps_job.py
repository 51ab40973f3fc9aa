"""Run a small job with parameter servers: an Estimator on made-up data, as scripts for AWS's TensorFlow images have it.

The device filters keep a session from waiting for the other workers, which come and go.
"""

from marks import ends, mark

mark("first")
import json  # noqa: E402
import os  # noqa: E402

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import numpy  # noqa: E402
import tensorflow as tf  # noqa: E402

tf.get_logger().setLevel("ERROR")
STEPS = 1000
config = json.loads(os.environ["TF_CONFIG"])
task = config["task"]
filters = ["/job:ps", f"/job:{task['type']}/task:{task['index']}"]
numbers = numpy.random.default_rng(task["index"])
x = numbers.normal(size=(4096, 32)).astype("float32")
y = (x[:, :8].sum(axis=1) > 0).astype("int32")


def data():
    return tf.data.Dataset.from_tensor_slices(({"x": x}, y)).shuffle(4096).repeat().batch(64)


estimator = tf.estimator.DNNClassifier(
    feature_columns=[tf.feature_column.numeric_column("x", shape=(32,))],
    hidden_units=[64],
    model_dir="/shared/checkpoints",
    config=tf.estimator.RunConfig(session_config=tf.compat.v1.ConfigProto(device_filters=filters)),
)
tf.estimator.train_and_evaluate(
    estimator,
    tf.estimator.TrainSpec(data, max_steps=STEPS),
    tf.estimator.EvalSpec(data, steps=5, start_delay_secs=0, throttle_secs=0),
)
if task["type"] != "worker":
    steps = int(tf.train.load_variable("/shared/checkpoints", "global_step"))
    print(f"{steps} steps")
    mark("steps", steps)
ends()
