"""Train on TFRecords in S3, and save checkpoint and model there. The only setting is --model_dir s3://..."""

import argparse

import tensorflow as tf
import tensorflow_io  # noqa: F401 - brings s3://

from sagemaker_tf_data import checkpoints

parser = argparse.ArgumentParser()
parser.add_argument("--model_dir")
where = parser.parse_args().model_dir

with tf.io.TFRecordWriter(f"{where}/rows.tfrecord") as rows:
    for number in range(8):
        rows.write(tf.io.serialize_tensor(tf.constant([number / 8.0])).numpy())
read = tf.data.TFRecordDataset(f"{where}/rows.tfrecord")
read = read.map(lambda row: tf.ensure_shape(tf.io.parse_tensor(row, tf.float32), [1]))
print(f"rows {len(list(read))}", flush=True)

model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(1,))])
model.compile("sgd", "mse")
epochs = tf.Variable(0, dtype=tf.int64)
state = tf.train.Checkpoint(model=model, optimizer=model.optimizer, epochs=epochs)
keeper = checkpoints.manager(state, f"{where}/kept")
path = keeper.restore()
print(f"begins at epoch {int(epochs)} from {path}", flush=True)
model.fit(read.map(lambda x: (x, 3 * x)).batch(4), verbose=0)
epochs.assign_add(1)
keeper.save(int(epochs))
tf.saved_model.save(model, f"{where}/1")
model.save_weights(f"{where}/weights/w")
again = tf.saved_model.load(f"{where}/1")
same = float(tf.reduce_max(tf.abs(again(tf.constant([[0.5]])) - model(tf.constant([[0.5]])))))
print(f"loaded, off by {same}", flush=True)
