"""Run TF2 parameter servers on AWS's images, in the shape of the AWS China blog's script.

Rank 0 is `master` there, so the script renames it. Workers run their own server until a file appears; the chief
schedules the steps, saves to a folder that all hosts share, and copies the model from there.
"""

import argparse
import json
import os
import shutil
import time
from pathlib import Path

import tensorflow as tf

ROWS, BATCH, EPOCHS = 320, 16, 2


def master_becomes_chief():
    config = json.loads(os.environ["TF_CONFIG"])
    print("tasks:", *sorted(config["cluster"]), flush=True)
    if "master" in config["cluster"]:
        config["cluster"]["chief"] = config["cluster"].pop("master")
    if config["task"]["type"] == "master":
        config["task"]["type"] = "chief"
    os.environ["TF_CONFIG"] = json.dumps(config)
    return config


def rows():
    x = tf.random.uniform((ROWS, 10, 10), seed=1)
    y = tf.reduce_mean(x, axis=(1, 2))[:, None]
    return tf.data.Dataset.from_tensor_slices((x, y)).shuffle(ROWS).batch(BATCH).repeat()


def serve(resolver, done, poll):
    server = tf.distribute.Server(
        resolver.cluster_spec(),
        job_name=resolver.task_type,
        task_index=resolver.task_id,
        protocol=resolver.rpc_layer or "grpc",
        start=True,
    )
    print(f"worker {resolver.task_id} serves at {server.target}", flush=True)
    while not done.exists():
        time.sleep(poll)
    print(f"worker {resolver.task_id} has seen {done.name}", flush=True)


def train(resolver, servers, done, folder):
    partitioner = tf.distribute.experimental.partitioners.MinSizePartitioner(min_shard_bytes=256, max_shards=servers)
    strategy = tf.distribute.experimental.ParameterServerStrategy(resolver, variable_partitioner=partitioner)
    batch = BATCH * strategy.num_replicas_in_sync
    with strategy.scope():
        model = tf.keras.models.Sequential(
            [
                tf.keras.layers.Flatten(input_shape=(10, 10)),
                tf.keras.layers.Dense(16, activation="relu"),
                tf.keras.layers.Dense(1),
            ]
        )
        model.compile(
            optimizer="adam",
            loss=tf.keras.losses.MeanSquaredError(reduction=tf.keras.losses.Reduction.NONE),
            metrics=["mae"],
        )

    @tf.function
    def step(iterator):
        def on_a_worker(inputs):
            x, y = inputs
            with tf.GradientTape() as tape:
                predictions = model(x, training=True)
                loss = tf.nn.compute_average_loss(model.loss(y, predictions), global_batch_size=batch)
            gradients = tape.gradient(loss, model.trainable_variables)
            model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            model.compiled_metrics.update_state(y, predictions)
            return loss

        return strategy.run(on_a_worker, args=(next(iterator),))

    coordinator = tf.distribute.experimental.coordinator.ClusterCoordinator(strategy)
    iterator = iter(coordinator.create_per_worker_dataset(tf.function(rows)))
    for epoch in range(EPOCHS):
        for _ in range(ROWS // batch):
            loss = coordinator.schedule(step, args=(iterator,)).fetch()
        print(f"epoch {epoch + 1}, loss {loss:.4f}", {m.name: float(m.result()) for m in model.metrics}, flush=True)
        model.reset_metrics()
    coordinator.join()
    done.touch()
    print(f"wrote {done.name}", flush=True)
    model.save(folder / "tf2-ps")
    shutil.copytree(folder / "tf2-ps", os.environ["SM_MODEL_DIR"], dirs_exist_ok=True)
    print("model copied", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, default=Path(os.environ.get("SM_CHANNEL_EFS", "/tmp")))
    parser.add_argument("--done", type=Path, help="a file; default: DONE in the folder")
    parser.add_argument("--poll", type=float, default=10)
    args, _ = parser.parse_known_args()
    config = master_becomes_chief()
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(config["cluster"]),
        task_type=config["task"]["type"],
        task_id=config["task"]["index"],
        num_accelerators={"GPU": 0},
        rpc_layer="grpc",
    )
    done = args.done or args.folder / "DONE"
    if resolver.task_type == "worker":
        serve(resolver, done, args.poll)
    elif resolver.task_type == "chief":
        train(resolver, len(config["cluster"]["ps"]), done, args.folder)
