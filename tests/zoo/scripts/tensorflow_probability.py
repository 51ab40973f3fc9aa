"""Fit a normalizing flow of tensorflow-probability to two moons of points; Horovod averages the gradients."""

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from shown import agree, falls, loads, model_dir

tfb, tfd = tfp.bijectors, tfp.distributions


def new_flow():
    networks = [tfb.AutoregressiveNetwork(params=2, hidden_units=[16, 16], activation="tanh") for _ in range(2)]
    parts = [tfb.Invert(tfb.MaskedAutoregressiveFlow(each)) for each in networks]
    steps = tfb.Chain([parts[0], tfb.Permute([1, 0]), parts[1]])
    flow = tfd.TransformedDistribution(tfd.MultivariateNormalDiag(tf.zeros(2), tf.ones(2)), steps)
    flow.log_prob(tf.zeros((1, 2)))  # makes the weights
    return flow


hvd.init()
draws = np.random.default_rng(hvd.rank())
angle, side = draws.uniform(0, np.pi, 512), draws.integers(0, 2, 512)
points = np.stack([np.cos(angle) + side, np.sin(angle) * (1 - 2 * side)], 1) + draws.normal(0, 0.1, (512, 2))
points = tf.constant(points, tf.float32)
flow, optimizer, losses = new_flow(), tf.keras.optimizers.Adam(0.03), []
hvd.broadcast_variables(flow.trainable_variables, root_rank=0)
for _ in range(15):
    with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
        loss = -tf.reduce_mean(flow.log_prob(points))
    gradients = tape.gradient(loss, flow.trainable_variables)
    optimizer.apply_gradients(zip(gradients, flow.trainable_variables, strict=True))
    losses.append(float(loss))
falls(losses[0], losses[-1])
agree(each.numpy() for each in flow.trainable_variables)
path, other = str(model_dir() / "flow"), new_flow()
tf.train.Checkpoint(weights=list(flow.trainable_variables)).write(path)
tf.train.Checkpoint(weights=list(other.trainable_variables)).read(path).assert_consumed()
loads(flow.log_prob(points[:8]), other.log_prob(points[:8]))
