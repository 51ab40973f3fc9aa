"""Make two models in the folder that is its argument: `saved/1`, a SavedModel of plain functions, and `two.keras`."""

import base64
import sys
from pathlib import Path

import tensorflow as tf

folder = Path(sys.argv[1])


class Functions(tf.Module):
    """A model: `serving_default` adds two numbers, `parses` adds those of a tf.train.Example, `waits` awaits a file."""

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, name="x")])
    def adds(self, x):
        return {"sum": tf.reduce_sum(x, axis=1)}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def parses(self, examples):
        parsed = tf.io.parse_example(examples, {"x": tf.io.FixedLenFeature([2], tf.float32)})
        return {"sum": tf.reduce_sum(parsed["x"], axis=1), "which": examples}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="path")])
    def waits(self, path):
        found = tf.io.matching_files(path)
        while tf.size(found) == 0:
            found = tf.io.matching_files(path)
        return {"found": found}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64, name="ids")])
    def looks_up(self, ids):
        with tf.device("cpu"):
            return {"value": tf.gather(tf.constant([10.0, 20.0, 30.0]), ids)}


functions = Functions()
signatures = {name: getattr(functions, name) for name in ("parses", "waits", "looks_up")}
tf.saved_model.save(functions, str(folder / "saved/1"), {"serving_default": functions.adds, **signatures})

example = tf.train.Example(
    features=tf.train.Features(feature={"x": tf.train.Feature(float_list=tf.train.FloatList(value=[1, 2]))})
)
(folder / "example").write_text(base64.b64encode(example.SerializeToString()).decode())

left, right = tf.keras.Input([1], name="left"), tf.keras.Input([1], name="right")
tf.keras.Model([left, right], tf.keras.layers.Add(name="total")([left, right])).save(folder / "two.keras")
