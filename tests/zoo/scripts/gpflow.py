"""Fit a sparse variational Gaussian process of GPflow; Horovod averages the gradients."""

import gpflow
import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
from shown import agree, falls, loads, model_dir


def new_model():
    """Return a sparse Gaussian process with ten inducing points."""
    kernel, noise = gpflow.kernels.SquaredExponential(), gpflow.likelihoods.Gaussian(0.1)
    return gpflow.models.SVGP(kernel, noise, np.linspace(-3, 3, 10)[:, None], num_data=512)


hvd.init()
draws = np.random.default_rng(hvd.rank())
x = draws.uniform(-3, 3, (256, 1))
y = np.sin(x) + draws.normal(0, 0.1, x.shape)
model, optimizer, losses = new_model(), tf.keras.optimizers.Adam(0.1), []
variables = model.trainable_variables
hvd.broadcast_variables(variables, root_rank=0)
for _ in range(15):
    with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
        loss = model.training_loss((x, y))
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
    losses.append(float(loss))
falls(losses[0], losses[-1])
agree(each.numpy() for each in variables)
path, other = tf.train.Checkpoint(model=model).write(str(model_dir() / "process")), new_model()
tf.train.Checkpoint(model=other).read(path).assert_existing_objects_matched()
loads(model.predict_f(x[:8])[0], other.predict_f(x[:8])[0])
