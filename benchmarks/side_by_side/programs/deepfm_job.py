"""Train DeepFM of examples/deepfm by TensorFlow's ParameterServerStrategy. Only the chief writes marks.

Our launcher starts this on the chief, and TensorFlow's servers elsewhere. The toolkit calls the chief master, and
starts this on the workers, too, where it serves until the chief no longer listens. There it decides itself who reads
which rows.
"""

import json
import os
import sys

config = json.loads(os.environ["TF_CONFIG"].replace('"master"', '"chief"'))
task, cluster = config["task"], config["cluster"]
os.environ["TF_CONFIG"] = json.dumps(config)
if "ENTRYPOINT_SHARDS" not in os.environ:
    count = len(cluster["worker"]) if task["type"] == "worker" else 1  # the chief evaluates on all rows
    part = {"channel": "training", "mode": "File", "count": count, "index": task["index"]}
    os.environ["ENTRYPOINT_SHARDS"] = json.dumps({"training": part})  # read in the graph, out of /proc
    os.execv(sys.executable, [sys.executable, *sys.argv])
if task["type"] == "worker":
    import socket
    import time

    import tensorflow as tf

    server = tf.distribute.Server(cluster, job_name="worker", task_index=task["index"], protocol="grpc")
    host, port = cluster["chief"][0].split(":")
    begun = over = False
    while not over:
        time.sleep(0.2)
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
            begun = True
        except OSError:
            over = begun
    os._exit(0)  # TensorFlow's server knows no end

from marks import ends, mark  # noqa: E402

mark("first")
import train  # noqa: E402

train.main()
ends()
