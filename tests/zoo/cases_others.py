"""List the libraries of others: trackers, search, data, JAX and the like."""

from case import Case

KERAS_2 = {"TF_USE_LEGACY_KERAS": "1"}  # for MultiWorkerMirrored with `fit`, on the line whose tf.keras is Keras 3
SERVERS = {**KERAS_2, "ENTRYPOINT_PS_WORKERS": "server"}
HYDRA = {"config-name": "large", "overrides": "optimizer.rate=0.01 epochs=5"}
GIN = (
    "network.units=24",
    "network.activation='relu'",
    "train.optimizer=@Adam",
    "Adam.learning_rate=0.01",
    "train.epochs=4",
)

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
    Case(
        "petastorm",
        ("petastorm", "pyarrow<15"),
        "mpi",
        ("2.14",),
        why="It needs pyarrow below 15, and does not say so.",
    ),
    Case(
        "petastorm",
        ("petastorm",),
        "mpi",
        ("2.21",),
        fails="No module named 'pyarrow.filesystem'",
        why="2.21: every pyarrow below 15 needs NumPy below 2.",
    ),
    Case("pandas", ("pandas",), "ps", environment=SERVERS),
    Case("polars", ("polars",), "mwms", environment=KERAS_2),
    Case("pyarrow", ("pyarrow",), "mwms", environment=KERAS_2),
    Case("datasets", ("datasets",), "mwms", environment=KERAS_2),
    Case("evaluate", ("evaluate",), "mpi"),
    Case("s3fs", ("s3fs", "moto[server]"), "mpi"),
    Case("opencv-python-headless", ("opencv-python-headless",), "mpi"),
    Case("albumentations", ("albumentations",), "mwms", environment={**KERAS_2, "NO_ALBUMENTATIONS_UPDATE": "1"}),
    Case("scikit-image", ("scikit-image",), "mpi"),
    Case("librosa", ("librosa",), "mpi"),
    Case("gensim", ("gensim",), "mpi"),
    Case("shap", ("shap",), "mpi"),
    Case("lightgbm", ("lightgbm",), "mpi"),
    Case("xgboost", ("xgboost",), "mpi"),
    Case("matplotlib", ("matplotlib",), "mwms", environment=KERAS_2),
    Case("seaborn", ("seaborn",), "mpi"),
    Case("einops", ("einops",), "mwms", environment=KERAS_2),
    Case("hydra-core", ("hydra-core",), "mpi", arguments=HYDRA),
    Case("gin-config", ("gin-config",), "ps", arguments={"gin_bindings": ";".join(GIN)}, environment=SERVERS),
    Case("sagemaker", ("sagemaker<3", "moto[s3,sts]"), "mpi"),
    Case(
        "smdebug",
        ("smdebug",),
        "mpi",
        refused="pyinstrument-cext",
        why="It asks for pyinstrument 3, which has no wheel for Python 3.11; images have no compiler to build one.",
    ),
    Case("flax", ("flax",), "jax", lines=("2.21",)),
    Case("optax", ("optax",), "jax", lines=("2.21",)),
    Case("orbax-checkpoint", ("orbax-checkpoint",), "jax", lines=("2.21",)),
]
