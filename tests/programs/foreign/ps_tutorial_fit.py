"""Run TensorFlow's own tutorial: workers and parameter servers join their server, the chief calls `fit`.

Each parameter server writes its own part of a checkpoint, so all hosts must share the folder.
"""

import argparse
import os

import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--folder", default="/tmp/my_working_dir")
args, _ = parser.parse_known_args()
resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if resolver.task_type in ("worker", "ps"):
    # As the tutorial says: so that a task that starts early does not wait for others.
    os.environ["GRPC_FAIL_FAST"] = "use_caller"
    server = tf.distribute.Server(
        resolver.cluster_spec(),
        job_name=resolver.task_type,
        task_index=resolver.task_id,
        protocol=resolver.rpc_layer or "grpc",
        start=True,
    )
    print(f"{resolver.task_type} {resolver.task_id} joins its server", flush=True)
    server.join()

strategy = tf.distribute.ParameterServerStrategy(resolver)


def rows(context):
    x = tf.random.uniform((64, 4), seed=1)
    dataset = tf.data.Dataset.from_tensor_slices((x, tf.reduce_sum(x, axis=1))).repeat()
    shard = dataset.shard(context.num_input_pipelines, context.input_pipeline_id)
    return shard.batch(context.get_per_replica_batch_size(16))


with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(4,))])
    model.compile(tf.keras.optimizers.legacy.SGD(0.1), loss="mse", steps_per_execution=5)
history = model.fit(
    tf.keras.utils.experimental.DatasetCreator(rows),
    epochs=2,
    steps_per_epoch=10,
    callbacks=[tf.keras.callbacks.ModelCheckpoint(filepath=f"{args.folder}/checkpoint-{{epoch}}")],
    verbose=2,
)
print("fit has ended, loss", history.history["loss"][-1], flush=True)
