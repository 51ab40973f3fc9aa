"""Run a small Horovod job with Keras on made-up data: a real job for launchers that run scripts under mpirun."""

from marks import ends, mark

mark("first")
import os  # noqa: E402

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import horovod.tensorflow.keras as hvd  # noqa: E402
import numpy  # noqa: E402
import tensorflow as tf  # noqa: E402

hvd.init()
tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)
numbers = numpy.random.default_rng(hvd.rank())
x = numbers.normal(size=(4096, 32)).astype("float32")
y = (x[:, :8].sum(axis=1) > 0).astype("float32")
model = tf.keras.Sequential([tf.keras.layers.Dense(64, "relu"), tf.keras.layers.Dense(1, "sigmoid")])
optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.legacy.Adam(0.01))
model.compile(optimizer, "binary_crossentropy", metrics=["accuracy"])
history = model.fit(
    x, y, batch_size=64, epochs=3, verbose=0, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
)
print(f"rank {hvd.rank()} of {hvd.size()}: loss {history.history['loss'][-1]:.4f}")
mark("size", hvd.size())
mark("loss", history.history["loss"][-1])
if hvd.rank() == 0:
    model.save("/opt/ml/model/1")
ends()
