"""Names of TensorFlow 1 in the user's code that this TensorFlow lacks: told by file and line before they are tried.

TensorFlow's own table of them, made for its `tf_upgrade_v2`, says what each is called now. It is read as text:
importing TensorFlow would take seconds.
"""

import ast
import contextlib
import re
from importlib.machinery import PathFinder
from pathlib import Path

TABLE = Path("tools/compatibility/renames_v2.py")  # in TensorFlow's folder
ENTRY = re.compile(r"^    'tf\.([\w.]+)':\s+'([\w.]+)'", re.MULTILINE)
# The table has these for another reason: TensorFlow 2 has the name, and something else under it.
STILL_THERE = re.compile(
    r"keras\.|summary\.(audio|histogram|image|scalar|text)$|losses\.(Reduction|mean_squared_error)|metrics\.mean_"
)
MODULES = ("app", "distributions", "flags", "gfile", "layers", "logging", "manip", "python_io", "resource_loader")
GONE = {
    "contrib": "ended with TensorFlow 1",
    "estimator": "ended with TensorFlow 2.15: line 2.14 of this image has it",
}
FIRST_WITHOUT_ESTIMATOR = (2, 16)
DISTRIBUTIONS = ("tensorflow", "tensorflow_cpu", "tensorflow_gpu", "tensorflow_cpu_aws")  # with TensorFlow in them
USES = re.compile(r"^[ \t]*(?:import|from) tensorflow\b", re.MULTILINE)
SHOWN_FILES, SHOWN_NAMES = 5, 8
# Of the table, what is used most: for where there is no TensorFlow that brings it.
FEW = (
    "ConfigProto",
    "GraphKeys",
    "InteractiveSession",
    "Session",
    "assign",
    "get_variable",
    "global_variables",
    "global_variables_initializer",
    "initialize_all_variables",
    "log",
    "placeholder",
    "reset_default_graph",
    "set_random_seed",
    "trainable_variables",
    "truncated_normal",
    "variable_scope",
    "train.AdamOptimizer",
    "train.GradientDescentOptimizer",
    "train.MomentumOptimizer",
    "train.MonitoredTrainingSession",
    "train.Saver",
    "train.get_global_step",
    "train.replica_device_setter",
    "nn.softmax_cross_entropy_with_logits_v2",
    "nn.dynamic_rnn",
)
REMEDY = (
    "Set ENTRYPOINT_TF1=shim, which runs the code as it is, or `import tensorflow.compat.v1 as tf` and "
    "`tf.disable_v2_behavior()` in its files"
)


def told(files: list[tuple[str, str]], path: list[str], *, shim: bool) -> list[str]:
    """Return a sentence for each file with such names, at most some of them; with the shim, of those it has not either.

    `files`: as `findings.texts` gives them. `path`: where the user's Python looks for TensorFlow. Nothing is found in a
    file that Python cannot parse, which it will say itself.
    """
    using = [(name, text) for name, text in files if USES.search(text)]
    folder = _tensorflow(path) if using else None
    if folder is None:
        return []
    version = _version(folder)
    table = _table(folder, version)
    names = {name: _names(text, table) for name, text in using}
    found, solved = [], False
    for name, lines in names.items():
        gone = {old: GONE[old] for old in lines if old in GONE}
        renamed = {} if shim else {old: table[old] for old in lines if old not in GONE}
        if renamed:
            solved = True
            listed = [f"tf.{old} (line {_lines(lines[old])}; now {new})" for old, new in renamed.items()]
            found.append(f"{name} uses what TensorFlow {version} has under other names: {_few(listed)}")
        found += [f"{name} uses tf.{old} (line {_lines(lines[old])}), which {why}" for old, why in gone.items()]
    more = [f"{len(found) - SHOWN_FILES} more such lines are left out"] if len(found) > SHOWN_FILES else []
    return [*found[:SHOWN_FILES], *more, *([REMEDY] if solved else [])]


def listed(files: list[tuple[str, str]], path: list[str], version: str) -> list[tuple[str, list[int], str, str, str]]:
    """Return (file, lines, old name, new name, why it is gone) of each such name, for a TensorFlow of that version.

    The table is that of the TensorFlow in `path`; without one, its beginning is.
    """
    folder = _tensorflow(path)
    table = _table(folder, version) if folder else {}
    if not table:
        table = {name: f"tf.compat.v1.{name}" for name in (*FEW, *MODULES)}
        table |= {old: "" for old in GONE if old != "estimator" or _numbers(version) >= FIRST_WITHOUT_ESTIMATOR}
    return [
        (name, lines, old, table[old], GONE.get(old, ""))
        for name, text in files
        if USES.search(text)
        for old, lines in _names(text, table).items()
    ]


def _names(text: str, table: dict[str, str]) -> dict[str, list[int]]:
    """Return the names of the table in a text of Python, with their lines, in the order in which they come."""
    found: dict[str, list[int]] = {}
    with contextlib.suppress(SyntaxError, ValueError, RecursionError):  # ValueError: a NUL
        tree = ast.parse(text)
        aliases = _aliases(tree)
        inner: set[int] = set()  # `tf.train` of `tf.train.Saver`
        for node in ast.walk(tree):
            chain, line = [] if id(node) in inner else _chain(node), getattr(node, "lineno", 0)
            if isinstance(node, ast.Attribute):
                inner.add(id(node.value))
            if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "tensorflow":
                inside = node.module.split(".")[1:]
                olds = [".".join([*inside, name.name]) for name in node.names]
            elif isinstance(node, ast.Import):
                olds = [name.name.partition(".")[2] for name in node.names if name.name.startswith("tensorflow.")]
            else:
                olds = [".".join(chain[1:])] if chain[:1] and chain[0] in aliases else []
            for old in filter(None, (_longest(old, table) for old in olds)):
                if line not in (lines := found.setdefault(old, [])):
                    lines.append(line)
    return dict(sorted(found.items(), key=lambda item: min(item[1])))


def _aliases(tree: ast.AST) -> set[str]:
    """Return what the file calls TensorFlow 2; not a name that may be compat.v1 as well."""
    two, one = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                if name.name == "tensorflow":
                    two.add(name.asname or "tensorflow")
                elif name.name == "tensorflow.compat.v1":
                    one.add(name.asname)
        elif isinstance(node, ast.ImportFrom) and node.module == "tensorflow.compat":
            one |= {name.asname or name.name for name in node.names}
        elif isinstance(node, ast.Assign) and _chain(node.value)[1:] == ["compat", "v1"]:
            one |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return two - one


def _chain(node: ast.AST) -> list[str]:
    """Return `tf.train.Saver` as its words; nothing for what is no such expression."""
    words: list[str] = []
    while isinstance(node, ast.Attribute):
        words.append(node.attr)
        node = node.value
    return [node.id, *reversed(words)] if words and isinstance(node, ast.Name) else []


def _longest(dotted: str, table: dict[str, str]) -> str:
    """Return what of `train.AdamOptimizer.minimize`, or `gfile.Exists`, the table has; nothing if it has none."""
    words = dotted.split(".")
    return next((part for end in range(len(words), 0, -1) if (part := ".".join(words[:end])) in table), "")


def _tensorflow(path: list[str]) -> Path | None:
    spec = PathFinder.find_spec("tensorflow", [*filter(None, path)])
    places = list(spec.submodule_search_locations or []) if spec else []
    return Path(places[0]) if places else None


def _version(folder: Path) -> str:
    """Return the version by the name of the folder of the distribution that lies beside: `tensorflow_cpu-2.14.1...`."""
    found = (path.name.split("-") for path in sorted(folder.parent.glob("tensorflow*.dist-info")))
    return next((words[1].removesuffix(".dist") for words in found if words[0] in DISTRIBUTIONS), "2")


def _table(folder: Path, version: str) -> dict[str, str]:
    """Return the old names that this TensorFlow lacks, each with the new one."""
    try:
        entries = dict(ENTRY.findall((folder / TABLE).read_text()))
    except OSError:
        return {}  # a TensorFlow that nobody knows: nothing can be said
    table = {old: new for old, new in entries.items() if not STILL_THERE.match(old)}
    table |= {module: f"tf.compat.v1.{module}" for module in MODULES}
    return table | {old: "" for old in GONE if old != "estimator" or _numbers(version) >= FIRST_WITHOUT_ESTIMATOR}


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def _few(texts: list[str]) -> str:
    more = len(texts) - SHOWN_NAMES
    return ", ".join(texts[:SHOWN_NAMES]) + (f" and {more} more" if more > 0 else "")


def _lines(numbers: list[int]) -> str:
    return ", ".join(map(str, sorted(numbers)[:4])) + (" ..." if len(numbers) > 4 else "")
