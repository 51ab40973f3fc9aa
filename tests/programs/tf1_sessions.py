"""Train in the manner of TF1: every task makes its server and trains in a MonitoredTrainingSession."""

import json
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import tensorflow.compat.v1 as tf

tf.disable_eager_execution()
config = json.loads(os.environ["TF_CONFIG"])
task = config["task"]
cluster = tf.train.ClusterSpec(config["cluster"])
server = tf.train.Server(cluster, job_name=task["type"], task_index=task["index"])
filters = ["/job:ps", f"/job:{task['type']}/task:{task['index']}"]
with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device=filters[1])):
    step = tf.train.get_or_create_global_step()
    weight = tf.get_variable("weight", [])
    train = tf.train.GradientDescentOptimizer(0.1).minimize((weight - 3.0) ** 2, global_step=step)
asked = time.monotonic()
with tf.train.MonitoredTrainingSession(
    master=server.target,
    is_chief=task["type"] == "chief",
    config=tf.ConfigProto(device_filters=filters),
    hooks=[tf.train.StopAtStepHook(last_step=200)],
) as session:
    print(f"session after {time.monotonic() - asked:.1f} s", flush=True)
    while not session.should_stop():
        session.run(train)
        time.sleep(0.02)
print("trained", flush=True)
