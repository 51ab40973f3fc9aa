"""Train until SIGTERM, and then save."""

import signal
import time

stopped = []
signal.signal(signal.SIGTERM, lambda *_: stopped.append(time.monotonic()))  # it may come while TensorFlow is read

import tensorflow as tf  # noqa: E402

for gpu in tf.config.list_physical_devices("GPU"):
    tf.config.experimental.set_memory_growth(gpu, True)
weights = tf.Variable(tf.random.normal([1024, 1024]))
weights.assign(tf.matmul(weights, weights) / 50)
print("training on", weights.device.rpartition("device:")[2], flush=True)
while not stopped:
    weights.assign(tf.matmul(weights, weights) / 50)
size = len(tf.io.serialize_tensor(weights).numpy())
print(f"saved {size} bytes in {time.monotonic() - stopped[0]:.2f} s after SIGTERM", flush=True)
