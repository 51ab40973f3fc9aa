"""Find a call of `fit` that may be a Keras model's, by parsing the program and the modules that it imports.

A call counts unless it is known to be another object's, or never to run. The launcher's warning and the doctor's check
both come from here.
"""

import ast
import contextlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import PurePosixPath

from parsed import UNREADABLE, Functions, dotted, imported, is_main

# Packages whose objects have a `fit` of their own, and classes of Keras that are no models.
OTHERS = {
    "sklearn",
    "xgboost",
    "lightgbm",
    "catboost",
    "statsmodels",
    "imblearn",
    "category_encoders",
    "scipy",
    "sagemaker",
    "lightning",
    "pytorch_lightning",
    "prophet",
    "hmmlearn",
    "umap",
}
NO_MODELS = ("ImageDataGenerator", "Tokenizer")
MOST_CHARS = 1 << 20  # of code that is parsed, from the program on: this takes up to a second


def first(files: list[tuple[str, str]], program: str) -> tuple[str, int] | None:
    """Return (file, line) of the first such call; None if there is none, or if nothing that runs uses Keras.

    `program` is one of `files`. If it is none of them (a shell script, a package), each file counts as a program.
    """
    trees = _read(dict(files), program)
    _drop_uncalled(trees)
    if not any("keras" in word for tree in trees.values() for word in _words(tree, strings=False)):
        return None
    classes = [node for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    own = {each.name for each in classes if any(isinstance(f, Functions) and f.name == "fit" for f in each.body)}
    for name, tree in trees.items():
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and dotted(node.func)[1][-1:] == ["fit"]]
        lines = [call.lineno for call in calls if not _is_others(call, tree, own)]
        if lines:
            return name, min(lines)
    return None


def _read(texts: dict[str, str], program: str) -> dict[str, ast.Module]:
    """Return the files that run, parsed, without what runs only if a module is the program."""
    name = str(PurePosixPath(program))
    programs = [name] if name in texts else list(texts)
    ends = defaultdict[str, list[str]](list)  # the files by each end of their paths
    for file in texts:
        parts = file.split("/")
        for at in range(len(parts)):
            ends["/".join(parts[at:])].append(file)
    order, seen, trees, chars = list(programs), set(programs), dict[str, ast.Module](), 0
    for file in order:  # which grows by what each imports
        chars += len(texts[file])
        if chars > MOST_CHARS:
            break
        with contextlib.suppress(*UNREADABLE):
            trees[file] = tree = _Pruned(file in programs).visit(ast.parse(texts[file]))
            brought = dict.fromkeys(each for path in _paths(tree, file) for each in ends.get(path, ()))
            order += [each for each in brought if each not in seen]
            seen |= brought.keys()
    return trees


def _paths(tree: ast.Module, file: str) -> Iterator[str]:
    """Yield the path of each module that a file may import, and of each program that it names: the end or the whole."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.endswith(".py"):
            yield node.value
        for words in (name.split(".") for _, *names in imported(node, file) for name in names):
            for end in range(1, len(words) + 1):
                path = "/".join(words[:end])
                yield from (f"{path}.py", f"{path}/__init__.py")


class _Pruned(ast.NodeTransformer):
    """Remove branches whose condition is False, and in a module `if __name__ == "__main__":`."""

    def __init__(self, is_program: bool) -> None:
        self.is_program = is_program

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        test = node.test
        never = isinstance(test, ast.Constant) and not test.value
        for_types = isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"
        return node.orelse if never or for_types or (is_main(test) and not self.is_program) else node


def _drop_uncalled(trees: dict[str, ast.Module]) -> None:
    """Remove the functions of each file whose names occur nowhere else."""
    words = {node: _words(node) for tree in trees.values() for node in tree.body}
    times = Counter(word for found in words.values() for word in found)
    functions = [node for node in words if isinstance(node, Functions) and node.name != "main"]
    while uncalled := [
        node
        for node in functions
        if node in words and not node.decorator_list and times[node.name] == (node.name in words[node])
    ]:
        for node in uncalled:
            times.subtract(words.pop(node))
    for tree in trees.values():
        tree.body = [node for node in tree.body if node in words]


def _words(tree: ast.AST, *, strings: bool = True) -> set[str]:
    """Return the names that occur in a tree, also as strings, by which a function may be looked up."""
    found = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute):
            found.add(node.id if isinstance(node, ast.Name) else node.attr)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {alias.name for alias in node.names} | {getattr(node, "module", None) or ""}
        elif strings and isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
    return found


def _is_others(call: ast.Call, tree: ast.Module, own: set[str]) -> bool:
    """Return whether a call is of an object that is no Keras model. `own`: classes of the code that define `fit`."""
    assert isinstance(call.func, ast.Attribute)
    on = call.func.value
    full = {name: meant for node in ast.walk(tree) for name, meant, _ in imported(node)}
    if isinstance(on, ast.Name) and on.id == "self":
        classes = [each for each in ast.walk(tree) if isinstance(each, ast.ClassDef) and call in ast.walk(each)]
        return bool(classes) and classes[-1].name in own
    makers = {_name(on.func, full)} if isinstance(on, ast.Call) else _makers(on, tree, full)
    if makers:
        return all(
            maker.partition(".")[0] in OTHERS or maker.rpartition(".")[2] in (*NO_MODELS, *own) for maker in makers
        )
    brought = {name.partition(".")[0] for name in full.values()}
    return bool(brought & OTHERS) and not any("keras" in word for word in _words(tree, strings=False))


def _makers(on: ast.expr, tree: ast.Module, full: dict[str, str]) -> set[str]:
    """Return the names of the calls that an object is assigned from; none if it is assigned anything else."""
    written, found = ast.unparse(on), set[str]()
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        value = getattr(node, "value", None)
        assigns = isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and value
        if assigns and written in [ast.unparse(each) for each in targets if type(each) is type(on)]:
            found.add(_name(value.func, full) if isinstance(value, ast.Call) else "")
    return set() if "" in found else found


def _name(node: ast.expr, full: dict[str, str]) -> str:
    """Return the full name of an expression: `svm.SVC` is sklearn.svm.SVC, `f().save` is .save."""
    base, words = dotted(node)
    return ".".join([full.get(base.id, base.id) if isinstance(base, ast.Name) else "", *words])
