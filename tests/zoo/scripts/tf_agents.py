"""Clone an expert's behaviour by an agent of tf-agents, on all hosts by MultiWorkerMirrored; save its policy."""

import numpy as np
import tensorflow as tf
from shown import agree, falls, loads, model_dir, rank
from tf_agents.agents.behavioral_cloning import behavioral_cloning_agent
from tf_agents.networks import q_network
from tf_agents.policies import policy_saver
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step, trajectory

SEEN, DONE = tensor_spec.TensorSpec([4], tf.float32), tensor_spec.BoundedTensorSpec([], tf.int64, 0, 1)
strategy = tf.distribute.MultiWorkerMirroredStrategy()
x = np.random.default_rng(rank()).normal(size=(320, 1, 4)).astype("float32")
actions, one = (x.sum(2) > 0).astype("int64"), np.ones((320, 1), "float32")
middle = np.ones((320, 1), "int32")
rows = trajectory.Trajectory(middle, x, actions, (), middle, one, one)
data = tf.data.Dataset.from_tensor_slices(rows).repeat().batch(16, drop_remainder=True)
with strategy.scope():
    agent = behavioral_cloning_agent.BehavioralCloningAgent(
        time_step.time_step_spec(SEEN),
        DONE,
        cloning_network=q_network.QNetwork(SEEN, DONE, fc_layer_params=(16,)),
        optimizer=tf.keras.optimizers.Adam(0.01),
        num_outer_dims=2,
    )
    agent.initialize()
train = tf.function(lambda batch: strategy.run(lambda one: agent.train(one).loss, (batch,)))
batches, losses = iter(strategy.experimental_distribute_dataset(data)), []
for _ in range(40):
    losses.append(float(strategy.reduce("MEAN", train(next(batches)), axis=None)))
falls(losses[0], losses[-1])
agree(each.numpy() for each in agent.policy.variables())
folder = str(model_dir() / "policy")
policy_saver.PolicySaver(agent.policy, batch_size=None).save(folder)
step, loaded = time_step.restart(tf.constant(x[:8, 0]), batch_size=8), tf.saved_model.load(folder)
loads(agent.policy.action(step).action, loaded.action(step).action)
