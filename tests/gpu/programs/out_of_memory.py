"""Allocate GPU memory until none is left."""

import tensorflow as tf

for gpu in tf.config.list_physical_devices("GPU"):
    tf.config.experimental.set_memory_growth(gpu, True)
kept = []
while True:
    kept.append(tf.random.normal([1024, 1024, 1024]))
    print(f"step={len(kept)} gib={4 * len(kept)} on {kept[-1].device}", flush=True)
