"""List which distribution modes and interfaces of TensorFlow work on each line of the image (container/lines).

It has the same for AWS's image of that TensorFlow with our entrypoint on it, and writes docs/matrix.md.
`cluster/test_cluster_matrix.py` runs every cell, even failing ones: if such a cell begins to work, its test fails.
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
    """A column: the interface of TensorFlow that a script trains with."""

    title: str
    api: str  # of programs/cell.py
    keras: str  # how the version of `tf.keras` begins
    environment: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Never:
    """A cell that fails: the text in the log ("": the test does not run it), the reason on the page, its source."""

    text: str
    reason: str
    source: str = ""


LEGACY = (("TF_USE_LEGACY_KERAS", "1"),)
LINES = {
    "2.14": {
        "keras2": Interface("Keras 2, `fit`", "fit", "2."),
        "loop": Interface("your own training loop, Keras 2", "loop", "2."),
        "estimator": Interface("`tf.estimator`", "estimator", "2."),
    },
    "2.21": {
        "keras2": Interface("Keras 2 (`TF_USE_LEGACY_KERAS=1`), `fit`", "fit", "2.", LEGACY),
        "loop2": Interface("your own training loop, Keras 2", "loop", "2.", LEGACY),
        "keras3": Interface("Keras 3, `fit`", "fit", "3."),
        "loop": Interface("your own training loop, Keras 3", "loop", "3."),
    },
}
COORDINATED = Never(
    "you need to pass this dataset to ClusterCoordinator.create_per_worker_dataset",
    "Keras 3's `fit` does not support ParameterServerStrategy, and has no DatasetCreator",
)
NEVER = {
    ("2.14", "ps_server", "estimator"): Never(
        "", "an Estimator's workers must run the script, too; with the chief alone, a job had not ended after 400 s"
    ),
    ("2.14", "mpi4py", "estimator"): Never("", "mpi4py averages no gradients in an Estimator; use Horovod"),
    ("2.21", "ps_script", "keras3"): COORDINATED,
    ("2.21", "ps_server", "keras3"): COORDINATED,
    ("2.21", "mwms", "keras3"): Never(
        "distribute.values.PerReplica'>) to a Tensor",
        "Keras 3's `fit` does not train on several hosts by TensorFlow; it does [on JAX](jax.md)",
        "https://github.com/keras-team/keras/issues/20585",
    ),
}
# Cells of an image of AWS's with our entrypoint on it (`./build.sh --on`) have this behind the line. What fails on our
# own image fails there, too.
ON = ", --on"
NO_HOROVOD = Never("No module named 'horovod'", "AWS's image has no Horovod")
NEVER |= {(line + ON, way, name): why for (line, way, name), why in NEVER.items()} | {
    (line + ON, "horovod", name): NO_HOROVOD for line, interfaces in LINES.items() for name in interfaces
}


# Interfaces of mode jax, on the lines that have it (programs/jax_cell.py): title, and what the job's code must name in
# its requirements.txt, as the image lacks it.
ON_JAX = {
    "fit": ("Keras 3, `fit`", ""),
    "loop": ("your own training loop, Keras 3", ""),
    "jit": ("plain JAX: `jit` with shardings", ""),
    "flax": ("Flax 0.12", "flax==0.12.8"),
}
JAX_LINE = "2.21"


HEAD = """# What runs on which TensorFlow

Which [modes](modes.md) train with which interface of TensorFlow, on each line of the image
([which to take](image.md#which-tensorflow)). Where Keras 3's `fit`, or an Estimator beside worker servers, will fail,
the coordinator's log warns before training and names a replacement.

- **Tests.** Each cell is a test (`tests/cluster/test_cluster_matrix.py`): two hosts in containers (one in the first
  row) train three weights, and all tasks must end with the right ones. If a "no" begins to work, its test fails.
- **`--on`** is [our entrypoint on](onto.md) a stand-in for AWS's image, made after their public Dockerfile: all cells
  are tested on it, too; a note says where it differs.
- **CPUs only.** Other jobs of all modes but `jax` ran on [one H100 and one H200](benchmarks/gpu.md).
"""


def page() -> str:
    """Return docs/matrix.md."""
    return "\n".join([HEAD, *(table(line, interfaces) for line, interfaces in LINES.items()), table_of_jax()])


def table_of_jax() -> str:
    """Return the table of mode jax."""
    needs = [needed for _, needed in ON_JAX.values() if needed]
    cells = [f"runs <sup>{needs.index(needed) + 1}</sup>" if needed else "runs" for _, needed in ON_JAX.values()]
    lines = [
        f"## JAX, in the image of TensorFlow {JAX_LINE}\n",
        f"| | {' | '.join(title for title, _ in ON_JAX.values())} |",
        "|" + "---|" * (len(ON_JAX) + 1),
        f"| [mode jax](jax.md) | {' | '.join(cells)} |",
        "",
        *(
            f"{number}. not in the image: name it in your `requirements.txt` (tested: `{needed}`)"
            for number, needed in enumerate(needs, 1)
        ),
    ]
    return "\n".join(lines) + "\n"


def table(line: str, interfaces: dict[str, Interface]) -> str:
    """Return the table of a line: its own image, and AWS's with our entrypoint on it where that differs."""
    titles = [interface.title for interface in interfaces.values()]
    reasons = list(dict.fromkeys(why for (of, *_), why in NEVER.items() if of in (line, line + ON)))
    rows = [f"| | {' | '.join(titles)} |", "|" + "---|" * (len(titles) + 1)]
    for way, title in WAYS.items():
        cells = [(NEVER.get((line, way, name)), NEVER.get((line + ON, way, name))) for name in interfaces]
        rows.append(f"| {title} | {' | '.join(_mark(*both, reasons) for both in cells)} |")
    own = {why for (of, *_), why in NEVER.items() if of == line}
    notes = [
        f"{number}. {'' if why in own else '`--on`: no; '}{why.reason}"
        + (f" ([source]({why.source}))" if why.source else "")
        + (f". The error: `{why.text}`" if why.text else "")
        for number, why in enumerate(reasons, 1)
    ]
    return "\n".join([f"## TensorFlow {line}\n", *rows, "", *notes]) + "\n"


def _mark(ours: Never | None, on: Never | None, reasons: list[Never]) -> str:
    """Return a cell. `ours` is why it fails on our image, `on` why it fails on AWS's; None means that it runs."""
    if on and not ours:
        return f"runs <sup>{reasons.index(on) + 1}</sup>"
    no = [f"no <sup>{reasons.index(why) + 1}</sup>" if why else "runs" for why in (ours, on)]
    return no[0] if no[0] == no[1] else f"{no[0]}; `--on`: {no[1]}"
