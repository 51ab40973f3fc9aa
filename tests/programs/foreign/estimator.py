"""Run TF1 parameter servers in the manner of the DeepFM article on AWS's images: an Estimator with device filters.

Rank 0 is `master`; it trains like a worker, evaluates, and exports the model at the end. `--filters 0` leaves out
the filters, which the article requires: without them, its jobs hang on AWS's images.
"""

import argparse
import json
import os

import tensorflow.compat.v1 as tf

tf.logging.set_verbosity(tf.logging.INFO)
ROWS, BATCH, COLUMNS = 640, 32, 8


def session_config(hosts, filtered):
    threads = os.cpu_count()
    filters = None
    if filtered and len(hosts) > 1:
        task = json.loads(os.environ["TF_CONFIG"])["task"]
        # Every host runs a parameter server. Without the filters, the last one to end waits for those that are gone.
        filters = ["/job:ps"]
        if str(task["type"]) == "master":
            filters.append("/job:master")
        else:
            filters.append(f"/job:worker/task:{task['index']}")
        print(f"task {task['type']} {task['index']}, filters {' '.join(filters)}", flush=True)
    return tf.ConfigProto(
        allow_soft_placement=True,
        device_count={"CPU": threads},
        intra_op_parallelism_threads=threads,
        inter_op_parallelism_threads=threads,
        device_filters=filters,
    )


def model_fn(features, labels, mode):
    bias = tf.get_variable("bias", [1], initializer=tf.zeros_initializer())
    weights = tf.get_variable("weights", [COLUMNS], initializer=tf.glorot_normal_initializer())
    logits = tf.reduce_sum(features["values"] * weights, axis=1) + bias
    predictions = {"prob": tf.sigmoid(logits)}
    if mode == tf.estimator.ModeKeys.PREDICT:
        output = {"serving_default": tf.estimator.export.PredictOutput(predictions)}
        return tf.estimator.EstimatorSpec(mode, predictions, export_outputs=output)
    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))
    if mode == tf.estimator.ModeKeys.EVAL:
        metrics = {"auc": tf.metrics.auc(labels, predictions["prob"])}
        return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops=metrics)
    train = tf.train.AdamOptimizer(0.05).minimize(loss, global_step=tf.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train)


def input_fn(shards=1, shard=0, epochs=1):
    values = tf.random.stateless_uniform([ROWS, COLUMNS], seed=[1, 2])
    labels = tf.cast(tf.reduce_sum(values, axis=1) > COLUMNS / 2, tf.float32)
    dataset = tf.data.Dataset.from_tensor_slices(({"values": values}, labels))
    return dataset.shard(shards, shard).repeat(epochs).batch(BATCH)


def serving_input_fn():
    values = {"values": tf.placeholder(tf.float32, [None, COLUMNS], name="values")}
    return tf.estimator.export.ServingInputReceiver(values, values)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--model_dir")
    parser.add_argument("--servable_model_dir", default=os.environ["SM_MODEL_DIR"])
    parser.add_argument("--hosts", type=json.loads, default=os.environ["SM_HOSTS"])
    parser.add_argument("--current_host", default=os.environ["SM_CURRENT_HOST"])
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--filters", type=int, default=1)
    flags, _ = parser.parse_known_args()

    config = tf.estimator.RunConfig().replace(
        session_config=session_config(flags.hosts, flags.filters), log_step_count_steps=50, save_summary_steps=100
    )
    estimator = tf.estimator.Estimator(model_fn, model_dir=flags.model_dir, config=config)
    mine = flags.hosts.index(flags.current_host)
    train_spec = tf.estimator.TrainSpec(lambda: input_fn(len(flags.hosts), mine, None), max_steps=flags.steps)
    exporter = tf.estimator.FinalExporter("last", serving_input_fn)
    eval_spec = tf.estimator.EvalSpec(input_fn, steps=None, exporters=[exporter], throttle_secs=0)
    tf.estimator.train_and_evaluate(estimator, train_spec, eval_spec)
    print("train_and_evaluate has ended", flush=True)
    if flags.current_host == flags.hosts[0]:
        estimator.export_saved_model(flags.servable_model_dir, serving_input_fn)
