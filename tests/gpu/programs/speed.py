"""Train ResNet-50 in bfloat16 on random images, and print the images per second of each block of steps."""

import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf

BATCH, STEPS, BLOCKS = 128, 20, 3
for gpu in tf.config.list_physical_devices("GPU"):
    tf.config.experimental.set_memory_growth(gpu, True)
tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")
model = tf.keras.applications.ResNet50(weights=None)
optimizer = tf.keras.optimizers.SGD(0.01, momentum=0.9)
of = tf.keras.losses.SparseCategoricalCrossentropy()
images = tf.random.normal([BATCH, 224, 224, 3])
labels = tf.random.uniform([BATCH], maxval=1000, dtype=tf.int32)
optimizer.build(model.trainable_variables)


@tf.function
def step():
    with tf.GradientTape() as tape:
        loss = of(labels, model(images, training=True))
    optimizer.apply_gradients(
        zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=True)
    )
    return loss


for _ in range(5):
    loss = step()
float(loss)
rates = []
for block in range(BLOCKS):
    began = time.perf_counter()
    for _ in range(STEPS):
        loss = step()
    float(loss)  # waits for the GPU
    rates.append(BATCH * STEPS / (time.perf_counter() - began))
    print(f"step={(block + 1) * STEPS} loss={float(loss):.3f} images_per_s={rates[-1]:.0f}", flush=True)
rates.sort()
print(f"speed {rates[len(rates) // 2]:.1f} ({rates[0]:.0f}-{rates[-1]:.0f}) images/s", flush=True)
