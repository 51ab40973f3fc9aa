"""Load a SavedModel and ask it for one prediction of each row; not part of a job."""

import json
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
import tensorflow as tf

folder, inputs = sys.argv[1], json.loads(sys.argv[2])
signature = tf.saved_model.load(folder).signatures["serving_default"]
specs = signature.structured_input_signature[1]
named = inputs if isinstance(inputs, dict) else {next(iter(specs)): inputs}
outputs = signature(**{name: tf.constant(value, specs[name].dtype) for name, value in named.items()})
print(json.dumps([next(iter(outputs.values())).numpy().tolist(), sorted(outputs)]))
