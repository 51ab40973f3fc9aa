"""Train in the manner of TF1 with Horovod, for ENTRYPOINT_TF1=shim. Ranks differ in first weights and in rows."""

import horovod.tensorflow as hvd
import tensorflow as tf

hvd.init()
config = tf.ConfigProto()
config.gpu_options.visible_device_list = str(hvd.local_rank())
rows = tf.placeholder(tf.float32, [None], name="rows")
begin = tf.constant_initializer(float(hvd.rank() + 1))
weight = tf.get_variable("weight", [], initializer=begin)
loss = tf.losses.mean_squared_error(rows, weight * tf.ones_like(rows))
step = tf.train.get_or_create_global_step()
optimizer = hvd.DistributedOptimizer(tf.train.GradientDescentOptimizer(0.1))
train = optimizer.minimize(loss, global_step=step)
hooks = [hvd.BroadcastGlobalVariablesHook(0), tf.train.StopAtStepHook(last_step=100)]
with tf.train.MonitoredTrainingSession(hooks=hooks, config=config) as session:
    print("begins at", session.run(weight), flush=True)
    while not session.should_stop():
        *_, last = session.run([train, weight], {rows: [float(hvd.rank()), 4.0]})
print(f"rank {hvd.rank()} of {hvd.size()} has ended at {last:.3f}", flush=True)

tf.reset_default_graph()
mine = tf.get_variable("mine", [], initializer=begin)
total = hvd.allreduce(mine, op=hvd.Sum)
with tf.Session(config=config) as session:
    session.run(tf.global_variables_initializer())
    before = session.run(total)
    session.run(hvd.broadcast_global_variables(0))
    print(f"before {before:.0f}, after {session.run(total):.0f}", flush=True)
