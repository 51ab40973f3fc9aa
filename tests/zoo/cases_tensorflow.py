"""List the libraries of TensorFlow and Keras."""

from case import Case

KERAS_2 = {"TF_USE_LEGACY_KERAS": "1"}  # for what is written for it, on the line whose tf.keras is Keras 3
SERVERS = {"ENTRYPOINT_PS_WORKERS": "server"}  # the script runs on the first host alone
L14, L21 = ("2.14",), ("2.21",)
ESTIMATOR = "cannot import name 'estimator' from 'tensorflow'"
NO_ESTIMATOR = "2.21: it needs `tf.estimator`, which TensorFlow has not had since 2.16."
KERAS_3 = "2.14: it needs Keras 3; keras-nlp 0.12 has much the same."

CASES: list[Case] = [
    Case("tensorflow-hub", ("tensorflow-hub",), "mwms", environment=KERAS_2),
    Case("tensorflow-text", ("tensorflow-text",), "mwms", environment=KERAS_2),
    Case("tensorflow-recommenders", ("tensorflow-recommenders",), "ps", environment={**KERAS_2, **SERVERS}),
    Case("tensorflow-ranking", ("tensorflow-ranking",), "mwms", L14),
    Case(
        "tensorflow-ranking",
        ("tensorflow-ranking",),
        "mwms",
        L21,
        environment=KERAS_2,
        fails=ESTIMATOR,
        why=NO_ESTIMATOR,
    ),
    Case("tensorflow-probability", ("tensorflow-probability",), "mpi", environment=KERAS_2),
    Case("tensorflow-datasets", ("tensorflow-datasets",), "mwms", environment=KERAS_2),
    Case("tensorflow-addons", ("tensorflow-addons",), "mwms", L14),
    Case(
        "tensorflow-addons",
        ("tensorflow-addons",),
        "mwms",
        L21,
        refused="asks for tensorflow-addons",
        why="2.21: it ended in 2024, with TensorFlow 2.15.",
    ),
    Case("tensorflow-model-optimization", ("tensorflow-model-optimization",), "mwms", environment=KERAS_2),
    Case("tensorflow-decision-forests", ("tensorflow-decision-forests",), "single", L14),
    Case(
        "tensorflow-decision-forests",
        ("tensorflow-decision-forests",),
        "single",
        L21,
        refused="asks for tensorflow-decision-forests",
        why="2.21: its last version is for TensorFlow 2.19; ydf, which follows it, needs no TensorFlow.",
    ),
    Case(
        "tensorflow-io",
        ("tensorflow-io==0.35.0",),
        "mwms",
        L14,
        environment={"ENTRYPOINT_REPLACE": "tensorflow-io"},
        why="2.14: operations of 0.34.0, which the image has for its S3 file system, do not load in TensorFlow 2.14. "
        "Those of 0.35.0 do, with `ENTRYPOINT_REPLACE=tensorflow-io`; its S3 crashes.",
    ),
    Case(
        "tensorflow-io",
        ("tensorflow-io",),
        "mwms",
        L21,
        environment=KERAS_2,
        fails="unable to open file: libtensorflow_io.so",
        why="2.21: its last version is for TensorFlow 2.16.",
    ),
    Case("tensorflow-gnn", ("tensorflow-gnn",), "mwms", environment=KERAS_2),
    Case(
        "tensorflow-transform",
        ("tensorflow-transform",),
        "mwms",
        L14,
        refused="asks for tensorflow-transform",
        why="2.14: it has releases for TensorFlow 2.13 and 2.15, and none for 2.14.",
    ),
    Case("tensorflow-transform", ("tensorflow-transform",), "mwms", L21, environment=KERAS_2),
    Case("tf-models-official", ("tf-models-official",), "mwms", L14),
    Case(
        "tf-models-official",
        ("tf-models-official",),
        "mwms",
        L21,
        refused="asks for tf-models-official",
        why="2.21: its last version, 2.20, is for TensorFlow 2.20.",
    ),
    Case("tf-agents", ("tf-agents",), "mwms", environment={**KERAS_2, "WRAPT_DISABLE_EXTENSIONS": "1"}),
    Case("tf-slim", ("tf-slim",), "mpi", environment=KERAS_2),
    Case("keras-hub", ("keras-hub",), "jax", L21),
    Case("keras-hub", ("keras-hub",), "mwms", L14, refused="asks for keras-hub", why=KERAS_3),
    Case("keras-nlp", ("keras-nlp",), "mwms", L14, why="2.14: on several hosts pass `jit_compile=False` to `compile`."),
    Case("keras-cv", ("keras-cv",), "mwms", environment=KERAS_2),
    Case("keras-tuner", ("keras-tuner",), "single"),
    Case("keras-rs", ("keras-rs",), "jax", L21),
    Case("autokeras", ("autokeras",), "single", L14),
    Case(
        "autokeras",
        ("autokeras",),
        "single",
        L21,
        fails="Received an invalid value for `units`",
        why="2.21: its classifier gives a layer one of NumPy's integers, which Keras 3.15 refuses.",
    ),
    Case("deepctr", ("deepctr",), "ps", environment=KERAS_2),
    Case("spektral", ("spektral",), "mpi", environment=KERAS_2),
    Case("larq", ("larq",), "mwms", L14),
    Case("larq", ("larq",), "mwms", L21, refused="asks for larq", why="2.21: it needs NumPy below 2."),
    Case("stardist", ("stardist",), "mpi", environment=KERAS_2),
    Case("gpflow", ("gpflow",), "mpi", environment=KERAS_2),
    Case("dm-sonnet", ("dm-sonnet",), "mpi", environment=KERAS_2),
    Case(
        "segmentation-models",
        ("segmentation-models",),
        "mwms",
        environment={**KERAS_2, "SM_FRAMEWORK": "tf.keras"},
    ),
    Case("neural-structured-learning", ("neural-structured-learning",), "mwms", L14),
    Case(
        "neural-structured-learning",
        ("neural-structured-learning",),
        "mwms",
        L21,
        environment=KERAS_2,
        fails=ESTIMATOR,
        why=NO_ESTIMATOR,
    ),
]
