"""Warn, before the start, of code that this way of distributing does not train. docs/matrix.md has the whole list."""

import ast
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from entrypoint.usercode import keras_fit
from entrypoint.usercode.api_names import SERVERS, WORKERS
from entrypoint.usercode.reached import reached
from entrypoint.usercode.reader import UserProgram
from entrypoint.usercode.source import Place, SourceFile, UseKind, matches, text_of, value_of
from entrypoint.usercode.words import ESTIMATOR, FIRST_WITH_KERAS_3, version_of

FIT = re.compile(r"\.fit\b")
KERAS_2 = re.compile(r"\btf_keras\b|\bTF_USE_LEGACY_KERAS\b")
HOROVOD = re.compile(r"^[^\S\n]*(import|from)\s+(horovod|smdistributed\.dataparallel)\b", re.MULTILINE)
INSTEAD = (
    "Set ENTRYPOINT_MODE=jax, and before the model call sagemaker_tf_data.initialize_jax() and "
    "keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False)); or "
    "ENTRYPOINT_MODE=mpi, and with horovod.tensorflow.keras as hvd call hvd.init(), compile with "
    "hvd.DistributedOptimizer(optimizer), and fit with hvd.callbacks.BroadcastGlobalVariablesCallback(0); or set "
    "TF_USE_LEGACY_KERAS=1, with tf_keras installed; or train with a loop of your own"
)
NO_FIT = {"ps": "knows no parameter servers", "mwms": "does not train on several hosts"}
CLASSES = ["Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "Ftrl", "Lion", "Nadam", "RMSprop", "SGD"]
OPTIMIZER = re.compile(rf"(?P<keras>(\w+\.)*keras\.)?([\w.]+\.)?optimizers\.(experimental\.)?({'|'.join(CLASSES)})")
FIRST_COMPILED = (2, 11)  # of TensorFlow: older optimizers of Keras, later called legacy, have no XLA
MAKES_SERVERS = re.compile(r"(?<!v1\.)\bParameterServerStrategy(V2)?\(|\bClusterCoordinator\(")
OFF = re.compile(r"\.jit_compile\s*=\s*False\b")
NO_TF_CONFIG = ("mpi", "jax")
OTHER_MODE = "strategy-of-another-mode"
STRATEGY = re.compile(r"\b([A-Z]\w*Strategy(?:V\d)?|ClusterCoordinator)\(")
# A script that makes or removes TF_CONFIG, or finds the other tasks in another way, has a cluster of its own.
OWN_CLUSTER = re.compile(
    r"""TF_CONFIG['"]?\s*\]?\s*(=(?!=)|:)|\b(del|pop|setdefault|putenv|unsetenv)\b.*TF_CONFIG"""
    r"|\bClusterSpec\b|\b(?!TFConfigClusterResolver\b)\w*ClusterResolver\b"
)
LONG_CHARS = 60  # characters of a call that are shown


class Doubt(NamedTuple):
    """Describe code that does not train. `check` is a name in docs/rules.md."""

    check: str
    place: Place | None  # line 0: the file as a whole; None: no file has it
    found: str
    instead: str

    def __str__(self) -> str:
        return f"{self.place or ''} {self.found}. {self.instead}".lstrip()


def doubts(
    code: UserProgram,
    mode: str,
    ps_workers: str,
    tensorflow: str,
    environment: Mapping[str, str],
    *,
    gpus: int = 0,
    servers: int = 0,
    ranks: int = 0,
) -> list[Doubt]:
    """Return code that does not train: by the words of each file; `fit` of Keras 3 and optimizers by parsing.

    `mode`: "" where one process trains alone. `tensorflow`: its version, "" if there is none. `environment` decides as
    it does in TensorFlow. `gpus`: those that TensorFlow sees and can use on this host; `servers`: parameter servers, of
    a chief that may see GPUs; `ranks`: of mpirun, on this host.
    """
    legacy = environment.get("TF_USE_LEGACY_KERAS") in ("1", "true", "True")  # tensorflow/__init__.py
    keras_3 = version_of(tensorflow) >= FIRST_WITH_KERAS_3 and not legacy
    keras_3 = keras_3 and not any(KERAS_2.search(source.code) for source in code.sources)
    found = [*_of_strategy(code, mode)]
    may_fit = keras_3 and mode in NO_FIT and any(FIT.search(source.code) for source in code.sources)
    if may_fit and (place := keras_fit.first(code)):
        why = f"calls fit, and that of Keras 3, which TensorFlow {tensorflow} has, {NO_FIT[mode]}"
        found.append(Doubt("keras-3-fit", place, why, INSTEAD))
    if mode == "ps" and ps_workers == "server":
        why = "has an Estimator, whose workers run the script: with TensorFlow servers as workers it waits for ever"
        found += [
            Doubt("estimator-never-ends", Place(file=source.shown), why, "Set ENTRYPOINT_PS_WORKERS=script")
            for source in code.sources
            if ESTIMATOR.search(source.code)
        ]
    if gpus and servers > 1 and not keras_3 and version_of(tensorflow) >= FIRST_COMPILED:
        found += _of_xla(code)
    if 0 < gpus < ranks and any(HOROVOD.search(source.code) for source in code.sources):
        found.append(_of_ranks(gpus, ranks))
    return found


def _of_strategy(code: UserProgram, mode: str) -> Iterator[Doubt]:
    """Yield a doubt if the program is sure to make the strategy of another mode, and no strategy beside it."""
    others = {"ps": WORKERS, **dict.fromkeys(NO_TF_CONFIG, (*SERVERS, *WORKERS))}.get(mode, SERVERS)
    if not any(name[1:] in source.code for name in others for source in code.sources):
        return
    sure = reached(code)
    made = {name for source in sure for name in STRATEGY.findall(source.code)}
    ways = {next((way for way in (WORKERS, SERVERS) if f".{name}" in way), name) for name in made}
    if len(ways) != 1 or any(OWN_CLUSTER.search(source.code) or HOROVOD.search(source.code) for source in sure):
        return
    for source, nodes in sure.items():
        for use in source.uses:
            if use.kind is UseKind.CALL and use.node in nodes and matches(f".{use.name}", others):
                yield _of_mode(source.last(use.node), use.place, mode)
                return


def _of_mode(strategy: str, place: Place, mode: str) -> Doubt:
    why = f"makes {strategy}, and the mode is {mode}" if mode else f"makes {strategy}, and the job has one host"
    if mode == "ps":
        why += ", whose TF_CONFIG has a chief, workers and parameter servers: the workers wait for one another, or fail"
        instead = "Set ENTRYPOINT_MODE=mwms, or make a ParameterServerStrategy"
    elif mode in NO_TF_CONFIG and matches(f".{strategy}", WORKERS):
        why += ", which sets no TF_CONFIG: each process trains alone"
        instead = "Set ENTRYPOINT_MODE=mwms"
    elif mode:
        why += ", which starts no parameter servers: the script waits for them, or fails"
        instead = "Set ENTRYPOINT_MODE=ps" + (", or make a MultiWorkerMirroredStrategy" if mode == "mwms" else "")
    else:
        why += ", which starts no parameter servers: the script waits for them, or fails"
        instead = "Set ENTRYPOINT_MODE=ps and give the job two hosts or more, or make no strategy on one host"
    return Doubt(OTHER_MODE, place, why, instead)


def _of_xla(code: UserProgram) -> Iterator[Doubt]:
    """Yield a doubt for each file whose optimizers of Keras 2 have steps that XLA compiles where a GPU is seen.

    XLA takes no variable of another device. With parameter servers the learning rate is on one of them, and each weight
    on any of them, so the first step fails.
    """
    if not any(MAKES_SERVERS.search(source.code) for source in code.sources):
        return
    for source in code.sources:
        found = [] if OFF.search(source.code) else sorted(_compiled(source))
        if found:
            line, _, written, instead = found[0]
            others = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
            why = (
                f"has {written}{others}: where there is a GPU, Keras 2 has XLA compile the steps of an optimizer, and "
                "XLA cannot use variables of another parameter server: the first step fails"
            )
            yield Doubt("ps-xla", Place(file=source.shown, line=line), why, f"Write {instead}")


def _compiled(source: SourceFile) -> Iterator[tuple[int, int, str, str]]:
    """Yield (line, column, the optimizer's text, what to write) of each optimizer that XLA would compile."""
    for node in source.all_nodes:
        if not isinstance(node, ast.Call):
            continue
        called, given = ast.unparse(node.func), {each.arg: each.value for each in node.keywords}
        full = OPTIMIZER.fullmatch(source.dotted(node.func))
        if OPTIMIZER.fullmatch(called) or (full and full["keras"]):
            if None not in given and value_of(given.get("jit_compile")) is not False:
                arguments = (ast.get_source_segment(source.text, each) or "" for each in (*node.args, *node.keywords))
                inside = " ".join(", ".join(arguments).split())
                inside = inside if len(called + inside) < LONG_CHARS else "..."
                instead = ", ".join(filter(None, [inside, "jit_compile=False"]))
                yield node.lineno, node.col_offset, f"{called}({inside})", f"{called}({instead})"
        elif called.endswith(".compile") and called != "re.compile":
            word = text_of(given.get("optimizer", node.args[0] if node.args else None))
            for each in CLASSES:
                if word.lower() == each.lower():
                    instead = f"tf.keras.optimizers.{each}(jit_compile=False) in place of {word!r}"
                    yield node.lineno, node.col_offset, f'compile(... "{word}" ...)', instead


def _of_ranks(gpus: int, ranks: int) -> Doubt:
    there = "1 GPU is" if gpus == 1 else f"{gpus} GPUs are"
    why = (
        f"{ranks} ranks are to train on each host, where {there}: NCCL accepts one rank per GPU, and Horovod fails "
        'with "invalid usage"'
    )
    instead = f"Set ENTRYPOINT_PROCESSES_PER_HOST={gpus}, or CUDA_VISIBLE_DEVICES=-1 to train on CPUs"
    return Doubt("ranks-and-gpus", None, why, instead)
