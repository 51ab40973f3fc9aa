"""List the libraries of TensorFlow and Keras."""

from case import Case

KERAS_2 = {"TF_USE_LEGACY_KERAS": "1"}  # for what is written for it, on the line whose tf.keras is Keras 3

CASES: list[Case] = [
    Case("tensorflow-hub", ("tensorflow-hub",), "mwms", environment=KERAS_2),
]
