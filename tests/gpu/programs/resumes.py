"""Train 60 steps with a checkpoint after every tenth, from where the last one ended.

The result is known, so it detects a lost or repeated step. The state is on the GPU.
"""

import time

import tensorflow as tf

from sagemaker_tf_data import checkpoints, pin_gpu

STEPS, EVERY, RATE = 60, 10, 0.5
gpus = pin_gpu()
with tf.device("GPU:0" if gpus else "CPU:0"):
    weights, velocity = tf.Variable(tf.zeros([1024])), tf.Variable(tf.zeros([1024]))
step = tf.Variable(0, dtype=tf.int64, trainable=False)
saver = checkpoints.manager(tf.train.Checkpoint(weights=weights, velocity=velocity, step=step))
saver.restore()
print(f"begins at step {int(step)} on {weights.device.rpartition('device:')[2]}", flush=True)
while int(step) < STEPS:
    velocity.assign(RATE * velocity + 1)
    weights.assign_add(velocity)
    step.assign_add(1)
    if int(step) % EVERY == 0:
        saver.save(int(step))
    print(f"step={int(step)} weight={float(weights[0]):.4f}", flush=True)
    time.sleep(0.1)  # so that it can be killed between two
wanted = sum(sum(RATE**k for k in range(n)) for n in range(1, STEPS + 1))
right = abs(float(weights[0]) - wanted) < 1e-2 and float(tf.reduce_max(tf.abs(weights - weights[0]))) == 0
print(f"after {int(step)} steps the weights are {'right' if right else 'WRONG'}", flush=True)
raise SystemExit(not right)
