"""List the libraries of others: trackers, search, data, JAX and the like."""

from case import Case

KERAS_2 = {"TF_USE_LEGACY_KERAS": "1"}  # for MultiWorkerMirrored with `fit`, on the line whose tf.keras is Keras 3

CASES: list[Case] = [
    Case("transformers", ("transformers<5",), "mwms", environment=KERAS_2),
    Case("tf2onnx", ("tf2onnx", "onnxruntime"), "mpi"),
    Case("mlflow", ("mlflow",), "mpi"),
    Case("wandb", ("wandb",), "mwms", environment=KERAS_2),
    Case("comet-ml", ("comet-ml",), "mpi"),
    Case("clearml", ("clearml",), "mpi"),
    Case("neptune", ("neptune", "neptune-tensorflow-keras"), "mpi"),
    Case("optuna", ("optuna",), "mpi"),
    Case("ray[tune]", ("ray[tune]",), "single"),
]
