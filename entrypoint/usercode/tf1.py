"""Find names of TensorFlow 1 in the user's code that this TensorFlow lacks, by file and line, before they are used.

TensorFlow's own table, made for its `tf_upgrade_v2`, has the new name of each. It is read as text: importing TensorFlow
would take seconds.
"""

import ast
import re
from collections.abc import Mapping
from importlib.machinery import PathFinder
from pathlib import Path

from entrypoint.usercode.reached import reached
from entrypoint.usercode.reader import UserProgram
from entrypoint.usercode.source import SourceFile, attributes, imports_of
from entrypoint.usercode.words import FIRST_WITH_KERAS_3, version_of

TABLE = Path("tools/compatibility/renames_v2.py")  # in TensorFlow's folder
ENTRY = re.compile(r"^    'tf\.([\w.]+)':\s+'([\w.]+)'", re.MULTILINE)
# These are in the table for another reason: TensorFlow 2 has the name, with another meaning.
STILL_THERE = re.compile(
    r"keras\.optimizers\.|summary\.(audio|histogram|image|scalar|text)$|losses\.(Reduction|mean_squared_error)|metrics\.mean_"
)
MODULES = ("app", "distributions", "flags", "gfile", "layers", "logging", "manip", "python_io", "resource_loader")
GONE = {
    "contrib": "ended with TensorFlow 1",
    "estimator": "ended with TensorFlow 2.15: line 2.14 of this image has it",
    "examples": "ended with TensorFlow 1",
}
FIRST_WITHOUT_ESTIMATOR = (2, 16)
# What compat.v1 takes from Keras 2, by its new name.
OF_KERAS_2 = re.compile(r"tf\.compat\.v1\.(keras|layers|nn\.rnn_cell)\b")
WITHOUT_KERAS_2 = "Keras 3 lacks: set TF_USE_LEGACY_KERAS=1, with tf_keras installed"
DISTRIBUTIONS = ("tensorflow", "tensorflow_cpu", "tensorflow_gpu", "tensorflow_cpu_aws")  # that contain TensorFlow
USES = re.compile(
    r"^[^\S\n]*(?:import|from)\s[^\n]*\b(?:tensorflow|keras)\b|\b(?:import_module|__import__)\(", re.MULTILINE
)
SHOWN_FILES, SHOWN_NAMES = 5, 8
# The names of the table that are used most, for use without a TensorFlow that has it.
FEW = (
    "ConfigProto", "GraphKeys", "InteractiveSession", "Session", "assign", "get_variable", "global_variables",
    "global_variables_initializer", "initialize_all_variables", "log", "placeholder", "reset_default_graph",
    "set_random_seed", "trainable_variables", "truncated_normal", "variable_scope", "keras.backend.get_session",
    "keras.backend.set_session", "train.AdamOptimizer", "train.GradientDescentOptimizer", "train.MomentumOptimizer",
    "train.MonitoredTrainingSession", "train.Saver", "train.get_global_step", "train.replica_device_setter",
    "nn.softmax_cross_entropy_with_logits_v2", "nn.dynamic_rnn",
)  # fmt: skip
REMEDY = (
    "Set ENTRYPOINT_TF1=shim, which runs the code as it is, or `import tensorflow.compat.v1 as tf` and "
    "`tf.disable_v2_behavior()` in its files"
)


def describe(code: UserProgram, path: list[str], *, shim: bool, keras_2: bool = False) -> list[str]:
    """Return a sentence for each file with such names, up to a limit. With the shim, report only names that it lacks.

    `path`: where the user's Python looks for TensorFlow. `keras_2`: as of `has_keras_2`. A file that Python cannot
    parse has no findings: Python will report it itself.
    """
    version, table, why = _known(code, path, keras_2)
    found, solved = [], False
    for source in code.sources:
        lines = _names(source, table)
        renamed = {} if shim else {old: table[old] for old in lines if old not in why}
        if renamed:
            solved = True
            listed = [f"tf.{old} (line {_lines(lines[old])}; now {new})" for old, new in renamed.items()]
            more = f" and {len(listed) - SHOWN_NAMES} more" if len(listed) > SHOWN_NAMES else ""
            few = ", ".join(listed[:SHOWN_NAMES]) + more
            found.append(f"{source.shown} uses what TensorFlow {version} has under other names: {few}")
        found += _lacking(source.shown, lines, why)
    return [*_shortened(found), *([REMEDY] if solved else [])]


def refused(code: UserProgram, path: list[str], *, keras_2: bool = False) -> str:
    """Return names that the shim lacks and the program is sure to use, by file and line; "" if there are none."""
    _, table, why = _known(code, path, keras_2)
    found = []
    for source, nodes in reached(code).items() if table else ():
        found += _lacking(source.shown, _names(source, {old: table[old] for old in why}, nodes), why)
    return "; ".join(["ENTRYPOINT_TF1=shim cannot run the code", *_shortened(found)]) if found else ""


def listed(
    code: UserProgram, path: list[str], version: str, *, keras_2: bool = False
) -> list[tuple[SourceFile, list[int], str, str, str]]:
    """Return (file, lines, old name, new name, why it is gone) of each such name, for a TensorFlow of that version.

    The table is that of the TensorFlow in `path`, or the most used names if there is none.
    """
    folder = _tensorflow(path)
    table = _table(folder, version) if folder else {}
    if not table:
        table = _with_modules({name: f"tf.compat.v1.{name}" for name in FEW}, version)
    why = _gone(table, version, keras_2)
    return [
        (source, lines, old, table[old], why.get(old, ""))
        for source in code.sources
        for old, lines in _names(source, table).items()
    ]


def has_keras_2(environment: Mapping[str, str], path: list[str] | None, *, shim: bool) -> bool:
    """Return whether TensorFlow 2.16 or newer uses tf_keras: by the environment, or by the shim if the path has it.

    Before there is a job, the path may be unknown: our image has tf_keras.
    """
    asked = environment.get("TF_USE_LEGACY_KERAS")
    if asked is None and shim:
        return path is None or PathFinder.find_spec("tf_keras", path) is not None
    return asked in ("1", "true", "True")  # tensorflow/__init__.py


def _known(code: UserProgram, path: list[str], keras_2: bool) -> tuple[str, dict[str, str], dict[str, str]]:
    """Return TensorFlow's version, its table, and the names in it that are gone; nothing if it is absent or unused."""
    folder = _tensorflow(path) if any(USES.search(source.code) for source in code.sources) else None
    version = _version(folder) if folder else ""
    table = _table(folder, version) if folder else {}
    return version, table, _gone(table, version, keras_2)


def _lacking(file: str, lines: dict[str, list[int]], why: dict[str, str]) -> list[str]:
    return [f"{file} uses tf.{old} (line {_lines(lines[old])}), which {why[old]}" for old in lines if old in why]


def _gone(table: dict[str, str], version: str, keras_2: bool) -> dict[str, str]:
    """Return the old names that compat.v1 lacks, too, each with the reason."""
    lacks = "" if keras_2 or version_of(version) < FIRST_WITH_KERAS_3 else WITHOUT_KERAS_2
    return {old: GONE[old] for old in table if old in GONE} | {
        old: lacks for old, new in table.items() if lacks and OF_KERAS_2.match(new)
    }


def _names(source: SourceFile, table: dict[str, str], nodes: set[ast.AST] | None = None) -> dict[str, list[int]]:
    """Return the names of the table in a file, with their lines, in the order in which they occur.

    `nodes`: only names at these nodes count; with None, all do.
    """
    found: dict[str, list[int]] = {}
    if not USES.search(source.code):
        return found
    meant = _meant(source)
    inner: set[ast.AST] = set()  # `tf.train` of `tf.train.Saver`
    for node in source.all_nodes:
        whole, line = node not in inner, source.at(node).line
        if isinstance(node, ast.Attribute):
            inner.add(node.value)
        if nodes is not None and node not in nodes:
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            olds = [_below(each.whole) for each in imports_of(node) if not each.level]
        else:
            olds = [_below(_loaded(node)), _meant_by(node, meant) if whole else None]
        for old in filter(None, (_longest(old or "", table) for old in olds)):
            if line not in (lines := found.setdefault(old, [])):
                lines.append(line)
    return dict(sorted(found.items(), key=lambda item: min(item[1])))


def _meant(source: SourceFile) -> dict[str, str]:
    """Return what the file's names mean in TensorFlow 2; "" is TensorFlow.

    Names that may be compat.v1's are left out.
    """
    two: dict[str, str] = {}
    one: set[str] = set()

    def bind(name: str, module: str) -> None:
        below = _below(module)
        if below is not None and f"{below}.".startswith("compat.v1."):
            one.add(name)
        elif below is not None:
            two[name] = below

    for each in source.imports:
        if not each.level:
            bind(each.here, each.meant)
    for name, assigned in source.assignments.items():
        for value in (each.value for each in assigned if name.isidentifier()):
            below = _meant_by(value, two)
            bind(name, _loaded(value) if below is None else f"tensorflow.{below}")
    return {name: below for name, below in two.items() if name not in one}


def _below(module: str) -> str | None:
    """Return `keras.backend` for `tensorflow.keras.backend`, or Keras's own name; None for other modules."""
    top, _, below = module.partition(".")
    return below if top == "tensorflow" else module if top == "keras" else None


def _loaded(node: ast.AST) -> str:
    """Return the module that `import_module("tensorflow.contrib")` or `__import__` imports; "" for other nodes."""
    if not (isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant)):
        return ""
    name = ast.unparse(node.func).rpartition(".")[2]
    return str(node.args[0].value) if name in ("import_module", "__import__") else ""


def _meant_by(node: ast.AST, meant: dict[str, str]) -> str | None:
    """Return `train.Saver` for the expression `tf.train.Saver`; None if it is not TensorFlow's."""
    base, words = attributes(node)
    below = meant.get(base.id) if isinstance(base, ast.Name) else _below(_loaded(base))
    return None if below is None or not words else ".".join([*filter(None, [below]), *words])


def _longest(dotted: str, table: dict[str, str]) -> str:
    """Return the longest beginning of a name (`train.AdamOptimizer.minimize`) that is in the table, or ""."""
    words = dotted.split(".")
    return next((part for end in range(len(words), 0, -1) if (part := ".".join(words[:end])) in table), "")


def _tensorflow(path: list[str]) -> Path | None:
    spec = PathFinder.find_spec("tensorflow", [*filter(None, path)])
    places = list(spec.submodule_search_locations or []) if spec else []
    return Path(places[0]) if places else None


def _version(folder: Path) -> str:
    """Return the version in the name of the distribution's folder: `tensorflow_cpu-2.14.1...`."""
    found = (path.name.split("-") for path in sorted(folder.parent.glob("tensorflow*.dist-info")))
    return next((words[1].removesuffix(".dist") for words in found if words[0] in DISTRIBUTIONS), "2")


def _table(folder: Path, version: str) -> dict[str, str]:
    """Return the old names that this TensorFlow lacks, each with the new one."""
    try:
        entries = dict(ENTRY.findall((folder / TABLE).read_text()))
    except OSError:
        return {}  # an unknown TensorFlow: nothing is found
    table = {old: new for old, new in entries.items() if not STILL_THERE.match(old)}
    return _with_modules(table, version)


def _with_modules(table: dict[str, str], version: str) -> dict[str, str]:
    table |= {module: f"tf.compat.v1.{module}" for module in MODULES}
    return table | {old: "" for old in GONE if old != "estimator" or version_of(version) >= FIRST_WITHOUT_ESTIMATOR}


def _shortened(found: list[str]) -> list[str]:
    more = [f"{len(found) - SHOWN_FILES} more such lines are left out"] if len(found) > SHOWN_FILES else []
    return [*found[:SHOWN_FILES], *more]


def _lines(numbers: list[int]) -> str:
    return ", ".join(map(str, sorted(numbers)[:4])) + (" ..." if len(numbers) > 4 else "")
