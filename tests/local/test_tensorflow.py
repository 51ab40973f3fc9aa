"""Test library functions that need TensorFlow itself, which is slow to import."""

import re

import pytest

pytestmark = pytest.mark.tensorflow
# A worker takes each step of a coordinator; the weights lie on a parameter server.
ON_A_SERVER = """
import time
import tensorflow as tf
x = tf.random.uniform((32, 3), seed=1).numpy()
y = x @ [[1.0], [2.0], [3.0]]
resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    weights, sgd = tf.Variable(tf.zeros([3, 1])), tf.keras.optimizers.legacy.SGD(0.1)

@tf.function
def step():
    def replica():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((x @ weights - y) ** 2)
        sgd.apply_gradients(zip(tape.gradient(loss, [weights]), [weights]))
        return loss
    return strategy.run(replica)

for number in range(100_000):
    loss = coordinator.schedule(step).fetch()
    print(f"step={number} loss={loss:.4f}", flush=True)
    time.sleep(0.05)
"""


def test_tf_module_accepts_a_dict_attribute(hosts):
    """TensorFlow 2.14 itself fails to do so with the typing_extensions that other libraries need."""
    script = "import tensorflow as tf\nmodule = tf.Module()\nmodule.held = {'a': tf.constant(42)}\n"
    script += "print('held', int(tf.function(lambda held: held['a'])(module.held)))\n"
    job = hosts(1, code=script)
    job.must_end(0)
    assert "held 42" in job[1].log


def test_workers_of_one_ps_are_recognised_as_training_together(hosts):
    job = hosts(2, code=ON_A_SERVER, mode="ps", PS_WORKERS="server", PS_COUNT=1)
    told = job.says("distributed: (.*)")[1]
    job.stop()
    assert re.match(r"yes: 2 hosts exchange \S+ k?B a step for 3 weights$", told.strip()), told
    job.must_end(143)
