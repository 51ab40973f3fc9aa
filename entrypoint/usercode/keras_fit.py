"""Find a call of `fit` that may be a Keras model's, in the program and the modules that it imports.

A call counts unless it is known to belong to another object, or never to run.
"""

import ast
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from entrypoint.usercode.reader import UserProgram, files_of
from entrypoint.usercode.source import Function, Place, SourceFile, imports_of, is_main_guard, texts_of, words_of

# Packages whose objects have a `fit` of their own, and classes of Keras that are no models.
OTHERS = {
    *("sklearn", "xgboost", "lightgbm", "catboost", "statsmodels", "imblearn", "category_encoders", "scipy"),
    *("sagemaker", "lightning", "pytorch_lightning", "prophet", "hmmlearn", "umap"),
}
NO_MODELS = ("ImageDataGenerator", "Tokenizer")
MOST_CHARS = 1 << 20  # of code that is parsed, from the program on: this takes up to a second
Running = dict[SourceFile, dict[ast.stmt, list[ast.AST]]]  # of each statement of a file, the nodes that may run


def first(code: UserProgram) -> Place | None:
    """Return the place of the first such call; None without one, or if no code that runs uses Keras.

    If the program is none of the files (a shell script, a package), each file counts as a program.
    """
    running = _read(code)
    _drop_uncalled(running)
    nodes_of = {source: [node for nodes in body.values() for node in nodes] for source, body in running.items()}
    if not any(_uses_keras(nodes) for nodes in nodes_of.values()):
        return None
    classes = [node for nodes in nodes_of.values() for node in nodes if isinstance(node, ast.ClassDef)]
    own = {each.name for each in classes if any(isinstance(f, Function) and f.name == "fit" for f in each.body)}
    for source, nodes in nodes_of.items():
        calls = [node for node in nodes if isinstance(node, ast.Call) and source.dotted(node.func).endswith(".fit")]
        lines = [call.lineno for call in calls if not _is_others(call, source, nodes, own)]
        if lines:
            return Place(file=source.shown, line=min(lines))
    return None


def _read(code: UserProgram) -> Running:
    """Return the code that may run: the program, and the files that it may import or name anywhere.

    Statements that never run are left out.
    """
    programs = code.programs or code.sources
    ends = defaultdict[str, list[SourceFile]](list)  # the files by each end of their paths
    for source in code.sources:
        parts = source.shown.split("/")
        for at in range(len(parts)):
            ends["/".join(parts[at:])].append(source)
    order, seen, running, chars = list(programs), set(programs), Running(), 0
    for source in order:  # which grows by what each imports
        chars += len(source.text)
        if chars > MOST_CHARS:
            break
        running[source] = {node: list(_may_run(node, source in programs)) for node in source.tree.body}
        paths = (path for nodes in running[source].values() for path in _paths(nodes))
        brought = dict.fromkeys(each for path in paths for each in ends.get(path, ()))
        order += [each for each in brought if each not in seen]
        seen |= brought.keys()
    return running


def _paths(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the path of each module that code may import, and of each program that it names: the end or the whole."""
    for node in nodes:
        yield from (text for text in texts_of([node]) if text.endswith(".py"))
        for each in imports_of(node):
            yield from files_of(each.whole.split("."))


def _may_run(node: ast.AST, is_program: bool) -> Iterator[ast.AST]:
    """Yield the nodes of a statement, without branches that never run: in a module, those of the main program."""
    left = [node]
    while left:
        node = left.pop()
        if isinstance(node, ast.If):
            never = isinstance(node.test, ast.Constant) and not node.test.value
            for_types = isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
            if never or for_types or (is_main_guard(node) and not is_program):
                left += node.orelse
                continue
        yield node
        left += ast.iter_child_nodes(node)


def _drop_uncalled(running: Running) -> None:
    """Remove each file's functions with names that occur nowhere else."""
    words = {node: words_of(nodes, strings=True) for body in running.values() for node, nodes in body.items()}
    times = Counter(word for found in words.values() for word in found)
    functions = [node for node in words if isinstance(node, Function) and node.name != "main"]
    while uncalled := [
        node
        for node in functions
        if node in words and not node.decorator_list and times[node.name] == (node.name in words[node])
    ]:
        for node in uncalled:
            times.subtract(words.pop(node))
    for source, body in running.items():
        running[source] = {node: nodes for node, nodes in body.items() if node in words}


def _uses_keras(nodes: Iterable[ast.AST]) -> bool:
    return any("keras" in word for word in words_of(nodes))


def _is_others(call: ast.Call, source: SourceFile, nodes: list[ast.AST], own: set[str]) -> bool:
    """Return whether a call's object is something else than a Keras model.

    `own`: the program's classes that define `fit`.
    """
    assert isinstance(call.func, ast.Attribute)
    on = call.func.value
    if isinstance(on, ast.Name) and on.id == "self":
        owner = source.class_of(call)
        return owner is not None and owner.name in own
    known = source.assignments.get(ast.unparse(on), ())
    made = [on] if isinstance(on, ast.Call) else [each.value for each in known if not each.is_part]
    makers = [source.dotted(each.func) for each in made if isinstance(each, ast.Call)]
    if makers and len(makers) == len(made):
        return all(
            maker.partition(".")[0] in OTHERS or maker.rpartition(".")[2] in (*NO_MODELS, *own) for maker in makers
        )
    brought = {name.partition(".")[0] for name in source.aliases.values()}
    return bool(brought & OTHERS) and not _uses_keras(nodes)
