"""Add up tensors of all sizes on every rank, and train. With DOES one rank misbehaves at a collective.

DOES=raises: the last rank raises. hangs: it never reaches the next collective. stopped: it is stopped by SIGSTOP
within one. differs: it enters another collective than the other ranks.

All ranks may share one GPU: NCCL refuses that on one machine, so each rank has another NCCL_HOSTID, as if
on its own machine, and they communicate by sockets of the loopback interface. With APART=no the variable is not set.
"""

import os
import subprocess
import time

import horovod.tensorflow as hvd
import tensorflow as tf

from sagemaker_tf_data import pin_gpu

rank = os.environ["OMPI_COMM_WORLD_RANK"]
if os.environ.get("APART", "yes") == "yes":
    os.environ["NCCL_HOSTID"] = f"rank-{rank}"
os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")

hvd.init()
gpus = pin_gpu()
last = hvd.rank() == hvd.size() - 1
does = os.environ.get("DOES", "all")
print(f"rank {hvd.rank()} of {hvd.size()} sees {len(gpus)} GPUs, NCCL {hvd.nccl_built()}", flush=True)

with tf.device("GPU:0" if gpus else "CPU:0"):
    for size in (256, 4096, 65536, 2**18, 2**20, 2**22, 2**24):
        right, seconds = True, []
        tensor = tf.fill([size], hvd.rank() + 1.0)
        for _ in range(10 if gpus else 3):
            began = time.perf_counter()
            total = hvd.allreduce(tensor, op=hvd.Sum, name=f"of-{size}")
            right &= float(total[0]) == float(total[-1]) == hvd.size() * (hvd.size() + 1) / 2
            seconds.append(time.perf_counter() - began)
        median = sorted(seconds)[len(seconds) // 2]
        where = total.device.rpartition("device:")[2]
        if hvd.rank() == 0:
            verdict = "right" if right else "WRONG"
            print(f"allreduce of {4 * size} B {verdict} on {where}, {1e3 * median:.2f} ms", flush=True)
    if last and does == "raises":
        time.sleep(2)  # so that the other rank is in the collective
        raise ValueError("bad batch on purpose")
    if last and does == "hangs":
        print("this rank enters no collective any more", flush=True)
        while True:
            time.sleep(1)
    if does == "differs":
        print(f"rank {hvd.rank()} enters a collective of its own", flush=True)
        hvd.allgather(tensor) if last else hvd.allreduce(tensor)
    if does == "stopped":
        if last:
            subprocess.Popen(["sh", "-c", f"sleep 3; kill -STOP {os.getpid()}"])
        print("all ranks add up again and again, until one is stopped", flush=True)
        while True:  # a rank is nearly always within a collective, and outputs nothing
            hvd.allreduce(tensor, op=hvd.Sum, name="again")

    weights = tf.Variable(tf.random.normal([512, 512], seed=hvd.rank()))
    hvd.broadcast_variables([weights], root_rank=0)
    optimizer = tf.keras.optimizers.SGD(0.001)
    for step in range(60):
        with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
            loss = tf.reduce_mean(tf.square(tf.matmul(tf.random.normal([64, 512]), weights)))
        optimizer.apply_gradients(zip(tape.gradient(loss, [weights]), [weights], strict=True))
        if hvd.rank() == 0 and step % 20 == 0:
            print(f"step={step} loss={float(loss):.4f}", flush=True)
    sums = hvd.allgather(tf.reshape(tf.reduce_sum(weights), [1]))
    print(f"rank {hvd.rank()}: weights are {'equal' if float(sums[0]) == float(sums[-1]) else 'DIFFERENT'}", flush=True)
