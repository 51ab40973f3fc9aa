"""Train modules of Sonnet with its optimizer; Horovod averages the gradients."""

import horovod.tensorflow as hvd
import numpy as np
import sonnet as snt
import tensorflow as tf
from shown import agree, falls, loads, model_dir


def new_network():
    """Return a convolution with normalized outputs, and a perceptron."""
    norm = snt.LayerNorm(axis=-1, create_scale=True, create_offset=True)
    return snt.Sequential([snt.Conv2D(8, 3), norm, tf.nn.relu, snt.Flatten(), snt.nets.MLP([16, 2])])


hvd.init()
draws = np.random.default_rng(hvd.rank())
labels = draws.integers(0, 2, 320)
images = tf.constant(draws.normal(size=(320, 8, 8, 1)) + labels[:, None, None, None], tf.float32)
network, optimizer, losses = new_network(), snt.optimizers.Adam(0.003), []
network(images)  # makes the weights
hvd.broadcast_variables(network.trainable_variables, root_rank=0)
for _ in range(40):
    with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, network(images))
        loss = tf.reduce_mean(each)
    optimizer.apply(tape.gradient(loss, network.trainable_variables), network.trainable_variables)
    losses.append(float(loss))
falls(losses[0], losses[-1])
agree(each.numpy() for each in network.trainable_variables)
path, other = tf.train.Checkpoint(network=network).write(str(model_dir() / "network")), new_network()
other(images)
tf.train.Checkpoint(network=other).read(path).assert_existing_objects_matched()
loads(network(images[:4]), other(images[:4]))
