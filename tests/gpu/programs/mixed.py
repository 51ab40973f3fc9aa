"""Train by `fit` in mixed precision. Ranks begin with different weights, Horovod averages, and all end with equal ones.

With float16, one rank's gradients of a batch are infinite: no rank takes that step, and none waits.
"""

import os

os.environ["NCCL_HOSTID"] = f"rank-{os.environ['OMPI_COMM_WORLD_RANK']}"  # as in horovod_job.py
os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")

import horovod.tensorflow as hvd_tf
import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf

from sagemaker_tf_data import pin_gpu

hvd.init()
gpus = pin_gpu()
keras3 = str(getattr(tf.keras, "__version__", "2")).startswith("3.")
tf.keras.utils.set_random_seed(hvd.rank())  # else some first weights learn too little in these few steps
random = np.random.default_rng(hvd.rank())
x = random.normal(size=(256, 8)).astype("float32")
y = x @ np.arange(8, dtype="float32")[:, None] / 8

for policy in ("mixed_bfloat16", "mixed_float16") if keras3 else ("mixed_bfloat16",):
    tf.keras.mixed_precision.set_global_policy(policy)
    model = tf.keras.Sequential(
        [tf.keras.Input((8,)), tf.keras.layers.Dense(64, "relu"), tf.keras.layers.Dense(1, dtype="float32")]
    )
    model.set_weights([weight + hvd.rank() for weight in model.get_weights()])  # to be broadcast
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.01))
    model.compile(optimizer, "mse", jit_compile=False)  # Horovod's operations are not for XLA on a GPU
    targets = y.copy()
    if policy == "mixed_float16" and hvd.rank() == 1:
        targets[:16] = 3e38
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
    model.fit(x, targets, batch_size=16, epochs=12, shuffle=False, callbacks=callbacks, verbose=0)
    weights = model.get_weights()
    everywhere = hvd_tf.allgather_object([weight.tolist() for weight in weights])
    same = all(each == everywhere[0] for each in everywhere) and all(np.isfinite(weight).all() for weight in weights)
    loss = float(np.mean((model.predict(x, verbose=0) - y) ** 2))
    where = model(x[:16]).device.rpartition("device:")[2]
    learned = policy == "mixed_float16" or loss < 0.5 * float(np.mean(y**2))
    words = f"{policy}: weights {'equal' if same else 'DIFFERENT'}, {'learned' if learned else 'NOT LEARNED'}"
    print(f"rank {hvd.rank()}, {words} on {where}, loss {loss:.3f}", flush=True)
