"""What each line of the image (container/lines) does in each way of distributing, by each interface of TensorFlow; and
what AWS's image of the same TensorFlow does with our entrypoint on it.

docs/matrix.md is written from here; `cluster/test_cluster_matrix.py` runs every cell, those that cannot be, too: one
that begins to work is news.
"""

from dataclasses import dataclass

WAYS = {
    "single": "one host",
    "ps_script": "parameter servers, the script on every host",
    "ps_server": "parameter servers, the script on the chief only",
    "mwms": "MultiWorkerMirrored",
    "horovod": "Horovod",
    "mpi4py": "mpi4py",
}
ENVIRONMENT = {
    "single": {"ENTRYPOINT_MODE": "single"},
    "ps_script": {"ENTRYPOINT_MODE": "ps"},
    "ps_server": {"ENTRYPOINT_MODE": "ps", "ENTRYPOINT_PS_WORKERS": "server"},
    "mwms": {"ENTRYPOINT_MODE": "mwms"},
    "horovod": {"ENTRYPOINT_MODE": "mpi"},
    "mpi4py": {"ENTRYPOINT_MODE": "mpi"},
}


@dataclass(frozen=True)
class Interface:
    """A column: what of TensorFlow a script trains with."""

    title: str
    api: str  # of programs/cell.py
    keras: str  # how the version of `tf.keras` begins
    environment: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Never:
    """Why a cell cannot be: what the log has ("": it is not run), the reason for people, and where that comes from."""

    text: str
    reason: str
    source: str = ""


LEGACY = (("TF_USE_LEGACY_KERAS", "1"),)
LINES = {
    "2.14": {
        "keras2": Interface("Keras 2, `fit`", "fit", "2."),
        "loop": Interface("a loop of one's own, Keras 2", "loop", "2."),
        "estimator": Interface("`tf.estimator`", "estimator", "2."),
    },
    "2.21": {
        "keras2": Interface("Keras 2 (`TF_USE_LEGACY_KERAS=1`), `fit`", "fit", "2.", LEGACY),
        "loop2": Interface("a loop of one's own, Keras 2", "loop", "2.", LEGACY),
        "keras3": Interface("Keras 3, `fit`", "fit", "3."),
        "loop": Interface("a loop of one's own, Keras 3", "loop", "3."),
    },
}
COORDINATED = Never(
    "you need to pass this dataset to ClusterCoordinator.create_per_worker_dataset",
    "Keras 3's `fit` knows no ParameterServerStrategy, and has no DatasetCreator",
)
NEVER = {
    ("2.14", "ps_server", "estimator"): Never(
        "", "an Estimator's workers have to run the script, too; its chief alone had not ended after 400 s"
    ),
    ("2.14", "mpi4py", "estimator"): Never("", "nothing in an Estimator averages by mpi4py; take Horovod"),
    ("2.21", "ps_script", "keras3"): COORDINATED,
    ("2.21", "ps_server", "keras3"): COORDINATED,
    ("2.21", "mwms", "keras3"): Never(
        "distribute.values.PerReplica'>) to a Tensor",
        "Keras 3's `fit` does not train on several hosts",
        "https://github.com/keras-team/keras/issues/20585",
    ),
}
# Where our entrypoint is put onto an image of AWS's (`./build.sh --on`), cells are called by its line and this. What
# our own image cannot, it cannot.
ON = ", --on"
NO_HOROVOD = Never("No module named 'horovod'", "AWS's image has no Horovod")
NEVER |= {(line + ON, way, name): why for (line, way, name), why in NEVER.items()} | {
    (line + ON, "horovod", name): NO_HOROVOD for line, interfaces in LINES.items() for name in interfaces
}


HEAD = """# What runs on which TensorFlow

Lines of the image (`./build.sh --tensorflow`, [which to take](image.md#which-tensorflow)), ways of distributing
([modes](modes.md)) and interfaces of TensorFlow. This page is written from `tests/matrix.py`; each cell is a
test (`tests/cluster/test_cluster_matrix.py`): two hosts in containers train three weights to what they are to be, and
all tasks have the same. What does not run is run there, too, where it ends by itself, so that this page hears of it if
it begins to. A script whose words say that it would meet what does not run is told so before it trains, by a warning
in the coordinator's log that says what to do instead.

All of it was run on CPUs only, in the images [for GPUs](image.md#for-gpus), too. Other jobs of all modes were run
on [one H100 and one H200](benchmarks/gpu.md). `--on`: [our entrypoint put onto](onto.md) a stand-in for AWS's image
of that TensorFlow, made after their public Dockerfile.
"""


def page() -> str:
    """Return docs/matrix.md."""
    parts = [HEAD]
    for line, interfaces in LINES.items():
        parts += [table(line, interfaces), table(line + ON, interfaces)]
    return "\n".join(parts)


def table(image: str, interfaces: dict[str, Interface]) -> str:
    """Return what runs on an image: a line of ours, or what `ON` says of it."""
    titles = [interface.title for interface in interfaces.values()]
    reasons = list(dict.fromkeys(why for (of, *_), why in NEVER.items() if of == image))
    rows = [f"| | {' | '.join(titles)} |", "|" + "---|" * (len(titles) + 1)]
    for way, title in WAYS.items():
        cells = [NEVER.get((image, way, name)) for name in interfaces]
        marks = ["runs" if why is None else f"no <sup>{reasons.index(why) + 1}</sup>" for why in cells]
        rows.append(f"| {title} | {' | '.join(marks)} |")
    notes = [
        f"{number}. {why.reason}"
        + (f" ([source]({why.source}))" if why.source else "")
        + (f". It ends with: `{why.text}`" if why.text else "")
        for number, why in enumerate(reasons, 1)
    ]
    return "\n".join([f"## TensorFlow {image}\n", *rows, "", *notes]) + "\n"
