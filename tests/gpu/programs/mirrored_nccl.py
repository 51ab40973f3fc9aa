"""Add up a tensor by NCCL in workers of MultiWorkerMirroredStrategy. With DOES=hangs, all wait for the last one.

Each worker has another NCCL_HOSTID, as if on its own machine, since NCCL refuses one GPU twice on a machine.
"""

import json
import os
import time

import tensorflow as tf

task = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
os.environ["NCCL_HOSTID"] = f"worker-{task}"
os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")

gpus = tf.config.list_physical_devices("GPU")
communication = tf.distribute.experimental.CommunicationImplementation
options = tf.distribute.experimental.CommunicationOptions(
    implementation=communication.NCCL if gpus else communication.RING
)
strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
workers = strategy.num_replicas_in_sync
last = task == workers - 1


@tf.function
def total(numbers):
    def add():
        context = tf.distribute.get_replica_context()
        placed = tf.identity(numbers)  # on the device of this replica, which all_reduce looks at
        return context.all_reduce(tf.distribute.ReduceOp.SUM, placed, options=options)

    return strategy.run(add)


right = True
for _ in range(30):
    summed = total(tf.fill([2**20], task + 1.0))
    right &= float(summed[0]) == float(summed[-1]) == workers * (workers + 1) / 2
where = summed.device.rpartition("device:")[2]
print(f"worker {task} of {workers}: sums {'right' if right else 'WRONG'} on {where}", flush=True)
if os.environ.get("DOES") == "hangs":
    if last:
        print("this worker enters no collective any more", flush=True)
        while True:
            time.sleep(1)
    total(tf.fill([2**20], 1.0)).numpy()
