"""Test what needs TensorFlow: parameter servers and training over several processes. Slow to import."""

import re
import signal

import pytest

pytestmark = pytest.mark.tensorflow
PS = {"sagemaker_parameter_server_enabled": "true"}
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


@pytest.mark.more  # programs of TensorFlow 1 are cells of tests/cluster/test_cluster_matrix.py
def test_a_tf1_worker_does_not_wait_for_its_session(hosts):
    """Its session is there at once, not after the 30 s that it sleeps if the chief has made no variables yet."""
    job = hosts(2, "tf1_sessions.py", hyperparameters=PS, environment={"ENTRYPOINT_PS_COUNT": "1"})
    assert job.end(within=300) == [0, 0]
    waited = float(re.search(r"worker/0\] session after ([\d.]+) s", job[2].log).group(1))
    assert waited < 25


def test_a_module_may_hold_a_dict(hosts):
    """TensorFlow 2.14 itself fails at that beside the typing_extensions that other libraries want."""
    script = "import tensorflow as tf\nmodule = tf.Module()\nmodule.held = {'a': tf.constant(42)}\n"
    script += "print('held', int(tf.function(lambda held: held['a'])(module.held)))\n"
    job = hosts(1, code={"train.py": script})
    assert job.end(within=200) == [0]
    assert "held 42" in job[1].log


def test_workers_that_train_three_weights_on_a_server_are_said_to_train_one_model(hosts):
    asked = {**PS, "sagemaker_entrypoint_ps_workers": "server", "sagemaker_entrypoint_ps_count": "1"}
    job = hosts(2, hyperparameters=asked, code={"train.py": ON_A_SERVER})
    told = job.says("distributed: (.*)")[1]
    job.signal(signal.SIGTERM)
    assert re.match(r"yes: 2 hosts exchange \S+ k?B a step for 3 weights$", told.strip()), told
    assert job.end(within=200) == [143, 143]
