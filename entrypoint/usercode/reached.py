"""Find, by reading the user's code, the places that the program is sure to reach when it runs.

A place under a condition, or under an exception that is caught, is not sure. Neither is a function, unless a sure place
calls it, or passes it to something that calls it.
"""

import ast
from collections.abc import Iterable, Iterator
from functools import lru_cache

from entrypoint.usercode.reader import UserProgram
from entrypoint.usercode.source import Function, SourceFile, imports_of, is_main_guard

CATCHES = {"", "ImportError", "ModuleNotFoundError", "AttributeError", "Exception", "BaseException"}
CALL_WHAT_THEY_GET = ("run", "map", "Estimator")
LEAVES = (ast.Return, ast.Break, ast.Continue)
ENDS = (*LEAVES, ast.Raise)


@lru_cache(maxsize=1)  # checks ask the same again and again
def reached(code: UserProgram) -> dict[SourceFile, set[ast.AST]]:
    """Return the names, calls and imports that the program is sure to reach, by file."""
    reading = _Reading(code)
    for program in code.programs:
        reading.module(program)
    return reading.nodes


class _Reading:
    def __init__(self, code: UserProgram) -> None:
        self.code = code
        self.nodes: dict[SourceFile, set[ast.AST]] = {}
        self.functions: dict[SourceFile, dict[str, Function]] = {}  # of a file: `main`, `Model.__init__`
        self.brought: dict[SourceFile, dict[str, tuple[SourceFile, str]]] = {}  # name -> (a file, the name there)
        self.done: set[tuple[SourceFile, str]] = set()

    def module(self, file: SourceFile) -> None:
        """Read a file as Python would, to import it or to run it."""
        if file not in self.nodes:
            self.nodes[file], self.functions[file], self.brought[file] = set(), {}, {}
            self._block(file.tree.body, file, "")

    def _block(self, body: list[ast.stmt], file: SourceFile, of_class: str) -> bool:
        """Read statements. Return whether the code behind them is sure to be reached."""
        for statement in body:
            if isinstance(statement, Function):
                self.functions[file][f"{of_class}{statement.name}"] = statement
                self._expressions([*statement.decorator_list, *statement.args.defaults], file, of_class)
            elif isinstance(statement, ast.ClassDef):
                self._expressions([*statement.bases, *statement.decorator_list], file, of_class)
                self._block(statement.body, file, f"{statement.name}.")
            elif isinstance(statement, ast.If | ast.While):
                if is_main_guard(statement):
                    if file in self.code.programs and not self._block(statement.body, file, of_class):
                        return False
                    continue
                self._expressions([statement.test], file, of_class)
                if any(isinstance(each, LEAVES) for each in ast.walk(statement)):
                    return False
            elif _may_pass_over(statement):
                if any(isinstance(each, LEAVES) for each in ast.walk(statement)):
                    return False
            elif hasattr(statement, "body"):  # with, for, try
                before = [each.context_expr for each in getattr(statement, "items", [])]
                self._expressions([*before, *filter(None, [getattr(statement, "iter", None)])], file, of_class)
                loops = isinstance(statement, ast.For | ast.AsyncFor)
                if not self._block(list(statement.body), file, of_class) and not loops:
                    return False
            elif not isinstance(statement, ast.Match):
                self._import(statement, file)
                self._expressions([statement], file, of_class)
                if isinstance(statement, ENDS):
                    return False
        return True

    def _expressions(self, nodes: Iterable[ast.AST], file: SourceFile, of_class: str) -> None:
        for node in (each for root in nodes for each in _sure(root)):
            if isinstance(node, ast.Attribute | ast.Name | ast.Import | ast.ImportFrom | ast.Call):
                self.nodes[file].add(node)
            if isinstance(node, ast.Call):
                for called in (node.func, *_handed(node)):
                    self._called(called, file, of_class)
                if not node.args and ast.unparse(node.func).endswith("app.run"):  # which calls `main`
                    self._called(ast.Name("main", ast.Load()), self.code.main, "")

    def _called(self, called: ast.expr, file: SourceFile, of_class: str) -> None:
        """Read a function of the user's that is called, or passed to something that calls it."""
        if isinstance(called, ast.Name):
            file, name = self.brought[file].get(called.id, (file, called.id))
        elif isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
            if called.value.id == "self":
                name = f"{of_class}{called.attr}"
            elif called.value.id in self.brought[file]:
                file, inside = self.brought[file][called.value.id]
                name = f"{inside}.{called.attr}" if inside else called.attr
            else:
                return
        else:
            return
        functions = self.functions.get(file, {})
        for each in (name, f"{name}.__init__"):
            if each in functions and (file, each) not in self.done:
                self.done.add((file, each))
                self._block(functions[each].body, file, each.rpartition(".")[0] + "." if "." in each else "")

    def _import(self, statement: ast.stmt, file: SourceFile) -> None:
        for each in imports_of(statement):
            outer = self.code.module(file, each.module, each.level)
            inner = self.code.module(file, each.whole, each.level)
            for read in (*outer, *inner):
                self.module(read)
            if found := self.code.module(file, each.meant, each.level):
                self.brought[file][each.here] = (found[-1], "")
            elif outer and isinstance(statement, ast.ImportFrom):
                self.brought[file][each.here] = (outer[-1], each.meant.rpartition(".")[2])


def _sure(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and its parts that are evaluated in any case."""
    yield node
    if isinstance(node, ast.BoolOp):
        inner: Iterable[ast.AST] = node.values[:1]
    elif isinstance(node, ast.IfExp | ast.Assert):
        inner = [node.test]
    elif isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
        inner = [node.generators[0].iter]
    elif isinstance(node, ast.Lambda):
        inner = ()
    else:
        inner = ast.iter_child_nodes(node)
    for each in inner:
        yield from _sure(each)


def _handed(call: ast.Call) -> Iterator[ast.expr]:
    """Yield functions that are passed to something that calls them. Tables of commands and argparse do not count."""
    if ast.unparse(call.func).rpartition(".")[2] in CALL_WHAT_THEY_GET:
        yield from call.args
    for keyword in call.keywords:
        if keyword.arg and (keyword.arg.endswith("fn") or keyword.arg in ("main", "target")):
            yield keyword.value


def _may_pass_over(statement: ast.stmt) -> bool:
    """Return whether the statement catches the error of a missing import or name."""
    caught: list[ast.expr | None] = []
    for handler in getattr(statement, "handlers", []):
        caught += handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    if isinstance(statement, ast.With):
        for item in statement.items:
            if isinstance(item.context_expr, ast.Call) and ast.unparse(item.context_expr.func).endswith("suppress"):
                caught += item.context_expr.args
    return bool(CATCHES & {ast.unparse(each).rpartition(".")[2] if each else "" for each in caught})
