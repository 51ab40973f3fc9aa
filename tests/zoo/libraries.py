"""List the libraries of the zoo with their expected results; write docs/libraries.md from the list and the results."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

RESULTS = Path(__file__).with_name("results.json")
ALL_LINES = DEFAULT, NEWER = "2.14", "2.21"
MODES = {"ps": "parameter servers", "mwms": "MultiWorkerMirrored", "mpi": "Horovod", "jax": "JAX", "single": "single"}


@dataclass(frozen=True)
class Case:
    """One library in one mode, on one or several lines of the image; scripts/NAME.py uses it on two hosts.

    `requirements`: lines of requirements.txt, by default the library's name.
    `refused`: text of the failure file where no version fits; the job must end with 65, and install nothing.
    `fails`: text of the failure file where a version is installed and does not work. `why` is a sentence for the page
    that names the fault and its origin.
    """

    library: str
    mode: str  # of MODES
    lines: tuple[str, ...] = ALL_LINES
    requirements: tuple[str, ...] = ()
    arguments: dict[str, str | int | float] = field(default_factory=dict)  # hyperparameters
    environment: dict[str, str] = field(default_factory=dict)
    refused: str = ""
    fails: str = ""
    why: str = ""

    @property
    def script(self) -> str:
        return self.library.partition("[")[0].replace("-", "_") + ".py"

    def key(self, line: str) -> str:
        return f"{self.library}, {line}, {self.mode}"


def refused(library: str, mode: str, lines: tuple[str, ...], why: str) -> Case:
    """Return the case of a library without a fitting version."""
    return Case(library, mode, lines, refused=f"asks for {library}", why=why)


L14, L21 = (DEFAULT,), (NEWER,)
KERAS_2 = {"TF_USE_LEGACY_KERAS": "1"}  # for what is written for it, on the line whose tf.keras is Keras 3
SERVERS = {**KERAS_2, "ENTRYPOINT_PS_WORKERS": "server"}  # the script runs on the first host alone
HYDRA = {"config-name": "large", "overrides": "optimizer.rate=0.01 epochs=5"}
GIN = "network.units=24;network.activation='relu';train.optimizer=@Adam;Adam.learning_rate=0.01;train.epochs=4"
NO_ESTIMATOR = "2.21: it needs `tf.estimator`, which TensorFlow has not had since 2.16."

CASES = [
    # ---- of TensorFlow and Keras
    Case("tensorflow-hub", "mwms", environment=KERAS_2),
    Case("tensorflow-text", "mwms", environment=KERAS_2),
    Case("tensorflow-recommenders", "ps", environment=SERVERS),
    Case("tensorflow-ranking", "mwms", L14),
    refused("tensorflow-ranking", "mwms", L21, NO_ESTIMATOR),
    Case("tensorflow-probability", "mpi", environment=KERAS_2),
    Case("tensorflow-datasets", "mwms", environment=KERAS_2),
    Case("tensorflow-addons", "mwms", L14),
    refused("tensorflow-addons", "mwms", L21, "2.21: it ended in 2024, with TensorFlow 2.15."),
    Case("tensorflow-model-optimization", "mwms", environment=KERAS_2),
    Case("tensorflow-decision-forests", "single", L14),
    refused(
        "tensorflow-decision-forests", "single", L21,
        "2.21: its last version is for TensorFlow 2.19; ydf, which follows it, needs no TensorFlow.",
    ),
    Case(
        "tensorflow-io", "mwms", L14, ("tensorflow-io==0.35.0",), environment={"ENTRYPOINT_REPLACE": "tensorflow-io"},
        why="2.14: operations of 0.34.0, which the image has for its S3 file system, do not load in TensorFlow 2.14. "
        "Those of 0.35.0 do, with `ENTRYPOINT_REPLACE=tensorflow-io`; its S3 crashes.",
    ),
    refused("tensorflow-io", "mwms", L21, "2.21: its last version is for TensorFlow 2.16."),
    Case("tensorflow-gnn", "mwms", environment=KERAS_2),
    refused(
        "tensorflow-transform", "mwms", L14,
        "2.14: it has releases for TensorFlow 2.13 and 2.15, and none for 2.14.",
    ),
    Case("tensorflow-transform", "mwms", L21, environment=KERAS_2),
    Case("tf-models-official", "mwms", L14),
    refused("tf-models-official", "mwms", L21, "2.21: its last version, 2.20, is for TensorFlow 2.20."),
    Case("tf-agents", "mwms", environment=KERAS_2),
    Case("tf-slim", "mpi", environment=KERAS_2),
    Case("keras-hub", "jax", L21),
    refused("keras-hub", "mwms", L14, "2.14: it needs Keras 3; keras-nlp 0.12 has much the same."),
    Case("keras-nlp", "mwms", L14, why="On several hosts set `model.jit_compile = False` after `compile`."),
    Case("keras-cv", "mwms", environment=KERAS_2),
    Case("keras-tuner", "single"),
    Case("keras-rs", "jax", L21),
    Case("autokeras", "single", L14),
    Case(
        "autokeras", "single", L21, fails="Received an invalid value for `units`",
        why="2.21: its classifier gives a layer one of NumPy's integers, which Keras 3.15 refuses.",
    ),
    Case("deepctr", "ps", environment=KERAS_2),
    Case("spektral", "mpi", environment=KERAS_2),
    Case("larq", "mwms", L14),
    refused("larq", "mwms", L21, "2.21: it needs NumPy below 2."),
    Case("stardist", "mpi", environment=KERAS_2),
    Case("gpflow", "mpi", environment=KERAS_2),
    Case("dm-sonnet", "mpi", environment=KERAS_2),
    Case("segmentation-models", "mwms", environment={**KERAS_2, "SM_FRAMEWORK": "tf.keras"}),
    Case("neural-structured-learning", "mwms", L14),
    refused("neural-structured-learning", "mwms", L21, NO_ESTIMATOR),
    # ---- of others: trackers, search, data, JAX and the like
    Case("transformers", "mwms", requirements=("transformers<5",), environment=KERAS_2),
    Case("tf2onnx", "mpi", requirements=("tf2onnx", "onnxruntime")),
    Case("mlflow", "mpi"),
    Case("wandb", "mwms", environment=KERAS_2),
    Case("comet-ml", "mpi"),
    Case("clearml", "mpi"),
    Case("neptune", "mpi", requirements=("neptune", "neptune-tensorflow-keras")),
    Case("optuna", "mpi"),
    Case("ray[tune]", "single"),
    Case(
        "petastorm", "mpi", L14, ("petastorm", "pyarrow<15"), why="It needs pyarrow below 15, and does not say so."
    ),
    Case(
        "petastorm", "mpi", L21, fails="No module named 'pyarrow.filesystem'",
        why="2.21: every pyarrow below 15 needs NumPy below 2.",
    ),
    Case("pandas", "ps", environment=SERVERS),
    Case("polars", "mwms", environment=KERAS_2),
    Case("pyarrow", "mwms", environment=KERAS_2),
    Case("datasets", "mwms", environment=KERAS_2),
    Case("evaluate", "mpi"),
    Case("s3fs", "mpi", requirements=("s3fs", "moto[server]")),
    Case("opencv-python-headless", "mpi"),
    Case("albumentations", "mwms", environment={**KERAS_2, "NO_ALBUMENTATIONS_UPDATE": "1"}),
    Case("scikit-image", "mpi"),
    Case("librosa", "mpi"),
    Case("gensim", "mpi"),
    Case("shap", "mpi"),
    Case("lightgbm", "mpi"),
    Case("xgboost", "mpi"),
    Case("matplotlib", "mwms", environment=KERAS_2),
    Case("seaborn", "mpi"),
    Case("einops", "mwms", environment=KERAS_2),
    Case("hydra-core", "mpi", arguments=HYDRA),
    Case("gin-config", "ps", arguments={"gin_bindings": GIN}, environment=SERVERS),
    Case("sagemaker", "mpi", requirements=("sagemaker<3", "moto[s3,sts]")),
    Case(
        "smdebug", "mpi", refused="pyinstrument-cext",
        why="It asks for pyinstrument 3, which has no wheel for Python 3.11; images have no compiler to build one.",
    ),
    Case("flax", "jax", L21),
    Case("optax", "jax", L21),
    Case("orbax-checkpoint", "jax", L21),
]  # fmt: skip


def results() -> dict[str, dict[str, str | float]]:
    """Return the results of cases that ran: `Case.key` -> version, seconds of installing and result."""
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


HEAD = """# Libraries that were tried

Which libraries train in which image ([lines](image.md#which-tensorflow)), in the versions that a `requirements.txt`
with their name installs there: [what stays at its version](user-code.md#requirements-and-pip).
{trained} of {all} train on at least one line.

- **Tests.** Each is used by a script of `tests/zoo/scripts` on two hosts in containers of the image: the loss falls,
  the replicas agree, and the saved model loads. Models are small, with random weights, and data are made on the spot.
- **refused**: no version fits, and the job ends within seconds with exit code 65. **fails**: a version is installed,
  and does not work. Both are tested, too.
- **Keras 2**: on 2.21 the job has `TF_USE_LEGACY_KERAS=1` in its environment, since the library is written for Keras 2.
- **Mode**: the way that people distribute it ([modes](modes.md)). Other ways were not tried, nor were GPUs.

{table}

The zoo runs weekly (`.github/workflows/test.yml`). By hand, all or one, after `./build.sh --tensorflow 2.21`:

    tests/run.sh --ring zoo
    TEST_LINE=2.21 TEST_IMAGE=sagemaker-tf-entrypoint:2.21 .venv/bin/python -m pytest tests/zoo -k keras-hub

With `ZOO_RESULTS=1` it writes versions into `tests/zoo/results.json`, of which
`pytest tests/unit/test_pages.py --refresh` makes this page.
"""


def page() -> str:
    """Return docs/libraries.md: a row for each library."""
    ran = results()
    by_library: dict[str, list[Case]] = {}
    for case in CASES:
        by_library.setdefault(case.library, []).append(case)
    titles = ["library", *(f"TensorFlow {line}" for line in ALL_LINES), "mode", "what does not work, and why"]
    rows = [titles, ["---"] * len(titles)]
    rows += [_row(library, by_library[library], ran) for library in sorted(by_library)]
    trained = {name.split(", ")[0] for name, result in ran.items() if result["result"] == "trains"}
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return HEAD.format(table=table, trained=len(trained & by_library.keys()), all=len(by_library))


def _row(library: str, cases: list[Case], ran: Mapping[str, Mapping[str, str | float]]) -> list[str]:
    of_lines = [[_cell(case, line, ran) for case in cases if line in case.lines] for line in ALL_LINES]
    modes = dict.fromkeys(case.mode for case in cases if not (case.refused or case.fails))
    modes = modes or dict.fromkeys(case.mode for case in cases)
    why = " ".join(dict.fromkeys(case.why for case in cases if case.why))
    return [
        f"`{library}`",
        *(", ".join(dict.fromkeys(each)) for each in of_lines),
        ", ".join(MODES[m] for m in modes),
        why,
    ]


def _cell(case: Case, line: str, ran: Mapping[str, Mapping[str, str | float]]) -> str:
    result = ran.get(case.key(line))
    if not result:
        return "not run"
    version = str(result.get("version", ""))
    if result["result"] != "trains":
        return f"{version} {result['result']}".strip()
    keras_2 = line != DEFAULT and "TF_USE_LEGACY_KERAS" in case.environment
    return f"{version}, Keras 2" if keras_2 else version
