"""Fit a line on parameter servers, with a checkpoint after each epoch; the evaluator evaluates them to the last.

It begins with the last one when the chief has gone: only with time of its own can it come to the end.
"""

import json
import os
import socket
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf

EPOCHS = 3
CHECKPOINTS = "/opt/ml/checkpoints"  # shared by all hosts: each parameter server writes its own part

config = json.loads(os.environ["TF_CONFIG"])


def rows(_=None):
    x = tf.random.uniform([64, 1])
    return tf.data.Dataset.from_tensor_slices((x, 3 * x + 2)).batch(8)


def line():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=[1])])
    model.compile(tf.keras.optimizers.SGD(0.2, jit_compile=False), "mse")  # XLA takes no variable of another server
    return model


def say(what, model):
    kernel, bias = (float(weight.ravel()[0]) for weight in model.get_weights())
    print(f"{what} at {time.time():.3f}: kernel={kernel:.6f} bias={bias:.6f}", flush=True)


class AfterTheChief(tf.keras.callbacks.Callback):
    def on_test_begin(self, logs=None):
        while tf.train.latest_checkpoint(CHECKPOINTS).endswith(f"-{EPOCHS}") and chief_answers():
            time.sleep(0.1)


def chief_answers():
    host, port = config["cluster"]["chief"][0].rsplit(":", 1)
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
        return True
    except ConnectionRefusedError:
        return False


if config["task"]["type"] == "evaluator":
    assert "evaluator" not in config["cluster"]
    model = line()
    tf.keras.utils.SidecarEvaluator(
        model, rows(), CHECKPOINTS, max_evaluations=EPOCHS, callbacks=[AfterTheChief()]
    ).start()
    say("evaluated", model)
else:
    strategy = tf.distribute.ParameterServerStrategy(tf.distribute.cluster_resolver.TFConfigClusterResolver())
    with strategy.scope():
        model = line()
    state = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
    manager = tf.train.CheckpointManager(state, CHECKPOINTS, max_to_keep=EPOCHS)
    model.fit(
        tf.keras.utils.experimental.DatasetCreator(lambda context: rows().repeat()),
        steps_per_epoch=20,
        epochs=EPOCHS,
        callbacks=[tf.keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: manager.save())],
        verbose=2,
    )
    assert chief_answers()
    say("trained", model)
