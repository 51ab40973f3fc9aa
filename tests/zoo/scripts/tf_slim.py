"""Train a graph of tf-slim in a session of TensorFlow 1's; Horovod averages the gradients."""

import horovod.tensorflow as hvd
import numpy as np
import tensorflow.compat.v1 as tf
import tf_slim as slim
from shown import agree, falls, loads, model_dir

tf.disable_eager_execution()
hvd.init()
draws = np.random.default_rng(hvd.rank())
labels = draws.integers(0, 2, 320)
images = (draws.normal(size=(320, 8, 8, 1)) + labels[:, None, None, None]).astype("float32")


def network(x):
    """Return the scores of two classes."""
    with slim.arg_scope([slim.conv2d, slim.fully_connected], weights_regularizer=slim.l2_regularizer(1e-4)):
        hidden = slim.max_pool2d(slim.conv2d(x, 8, [3, 3], scope="conv"), [2, 2])
        return slim.fully_connected(slim.flatten(hidden), 2, activation_fn=None, scope="scores")


x, y = tf.placeholder(tf.float32, [None, 8, 8, 1]), tf.placeholder(tf.int64, [None])
scores = network(x)
tf.losses.sparse_softmax_cross_entropy(y, scores)
loss = tf.losses.get_total_loss()
train = slim.learning.create_train_op(loss, hvd.DistributedOptimizer(tf.train.AdamOptimizer(0.003)))
saver, losses = tf.train.Saver(slim.get_model_variables()), []
with tf.Session() as session:
    session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
    session.run(hvd.broadcast_global_variables(0))
    losses = [session.run(train, {x: images, y: labels}) for _ in range(30)]
    falls(losses[0], losses[-1])
    agree(session.run(slim.get_model_variables()))
    before, path = session.run(scores, {x: images[:4]}), saver.save(session, str(model_dir() / "slim"))
with tf.Session() as session:
    slim.assign_from_checkpoint_fn(path, slim.get_model_variables())(session)
    loads(before, session.run(scores, {x: images[:4]}))
