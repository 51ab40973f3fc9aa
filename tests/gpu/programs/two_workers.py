"""Compute on the GPU that two workers of one host share."""

import os

import tensorflow as tf

names = ("CUDA_VISIBLE_DEVICES", "TF_FORCE_GPU_ALLOW_GROWTH")
print("told", *(f"{name}={os.environ.get(name)}" for name in names), flush=True)
print("sees", len(tf.config.list_physical_devices("GPU")), "GPUs", flush=True)
x = tf.random.normal([512, 512])
for _ in range(100):
    x = tf.matmul(x, x) / 1e4
print("computed on", x.device.rpartition("device:")[2], flush=True)
