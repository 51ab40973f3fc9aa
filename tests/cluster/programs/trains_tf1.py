"""Train one weight in the manner of TF1, for ever: the chief and each worker have their own sessions.

--raises HOST: at step 10 that host raises.
"""

import json
import os
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")

import tensorflow.compat.v1 as tf

tf.disable_eager_execution()
HOST = os.environ["SM_CURRENT_HOST"]
config = json.loads(os.environ["TF_CONFIG"])
task = config["task"]
me = f"/job:{task['type']}/task:{task['index']}"
cluster = tf.train.ClusterSpec(config["cluster"])
server = tf.train.Server(cluster, job_name=task["type"], task_index=task["index"])
with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device=me)):
    step = tf.train.get_or_create_global_step()
    weight = tf.get_variable("weight", [])
    train = tf.train.GradientDescentOptimizer(0.01).minimize((weight - 3.0) ** 2, global_step=step)
filters = tf.ConfigProto(device_filters=["/job:ps", me])
with tf.train.MonitoredTrainingSession(server.target, task["type"] == "chief", config=filters) as session:
    own = 0
    while True:
        session.run(train)
        own += 1
        print(f"step {own}", flush=True)
        if own == 10 and sys.argv[1:] == ["--raises", HOST]:
            print(f"raises at {time.time():.3f}", flush=True)
            raise ValueError(f"row 17 of {HOST} has no label")
        time.sleep(0.05)
