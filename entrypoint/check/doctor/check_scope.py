"""Check that a script makes what it trains in its strategy's scope, and runs its steps in the strategy.

Calls are followed through functions, methods and modules. What cannot be followed is not reported.
"""

import ast
from collections.abc import Iterator, Mapping

from entrypoint.check.doctor.check_distribution import joins_hosts_itself
from entrypoint.check.doctor.rulebook import finding
from entrypoint.check.doctor.subject import Case
from entrypoint.check.finding import Finding
from entrypoint.launcher.job.job import Mode
from entrypoint.usercode.api_names import HOROVOD, SERVERS, WORKERS
from entrypoint.usercode.reader import UserProgram
from entrypoint.usercode.source import (
    Function,
    SourceFile,
    UseKind,
    calls_in,
    is_main_guard,
    matches,
    parameters,
    texts_of,
)

_MODELS = (
    *(".Sequential", ".Model", ".load_model", ".clone_model", ".from_pretrained", ".model_from_json", ".from_config"),
)
_MODEL_CLASSES = (".Model", ".Sequential", ".Module", ".Functional")
_APPLICATIONS = ("*keras.applications.*",)
_FITS = ("fit", "train_on_batch")
_TRAINED = ("trainable_variables", "trainable_weights")
_UPDATES = ("gradient", "apply_gradients", "minimize", "apply")  # calls that are given what is trained
_METRICS = ("*keras.metrics.*",)
# What runs steps in the strategy, or exchanges gradients otherwise.
_RUNS = (".run", ".experimental_run_v2", ".schedule", ".call_for_each_replica")
_EXCHANGES = (
    *(".fit", ".train", ".train_on_batch", ".make_train_function", ".reduce", ".all_reduce", ".batch_reduce"),
    "*tuner*.search",
)
_WEIGHTS = (
    "variables",
    "trainable_variables",
    "weights",
    "trainable_weights",
    "get_weights",
    "count_params",
    "summary",
)
_SHAPELESS = ("Dense", "Conv1D", "Conv2D", "Conv3D", "LSTM", "GRU", "SimpleRNN", "Flatten", "Reshape")
_SHAPES = ("input_shape", "input_dim", "batch_input_shape", "input_length", "batch_size", "input_tensor")
_OTHER_SCOPES = (".name_scope", ".variable_scope", ".custom_object_scope", ".CustomObjectScope", ".arg_scope")
_DECORATORS = (  # that enter no scope
    *("staticmethod", "classmethod", "property", "tensorflow.*", "tf.*", "functools.*", "click.*", "hydra.*", "gin.*"),
    *("keras.*", "abc.*", "typing.*", "*.command", "*.setter"),
)
_STARTERS = ("*app.run", "*fire.Fire", "*typer.run")
_DEPTH = 8  # calls that are followed


def of_scope(case: Case) -> Iterator[Finding]:
    """Yield models and metrics that are made outside of the strategy's scope, and steps that run outside of it.

    Yield uses of weights, too, that a model does not have yet.
    """
    code = case.code
    if case.tensorflow < (2, 16):
        yield from _of_weights(code)
    together = case.together(Mode.MWMS) or case.together(Mode.PS) or (case.hosts > 1 and joins_hosts_itself(code))
    if together and code.call(*WORKERS, *SERVERS):
        yield from _of_models(case)
        yield from _of_loops(case)


def _of_models(case: Case) -> Iterator[Finding]:
    scopes = Scopes(case.code, case.environment if case.job else None)
    if scopes.is_unusual:
        return
    trained, known = list(_trained(case.code, scopes)), set()
    if any(scopes.made(*each, within=True) for each in trained):
        trained = []  # other models may be trained before, on each host alone: to find a rate, or as a teacher
    for source, node in trained:
        for where, made in scopes.made(source, node):
            place = where.at(made)
            if place in known:
                continue
            known.add(place)
            around = (each for each in where.around(made) if isinstance(each, ast.Assign | ast.AnnAssign))
            written = " ".join(ast.unparse(next(around, made)).split())[:100]
            yield finding("model-outside-scope", place, written=written)
    for source, call in case.code.nodes(ast.Call) if not known and case.tensorflow < (2, 16) else ():
        if source.last(call) == "compile":
            for keyword in call.keywords:
                for metric in calls_in(keyword.value) if keyword.arg in ("metrics", "weighted_metrics") else ():
                    if matches(source.dotted(metric.func), _METRICS) and scopes.is_in(source, metric) is False:
                        yield finding("metric-outside-scope", source.at(metric), written=ast.unparse(metric))
                        return


def _of_weights(code: UserProgram) -> Iterator[Finding]:
    for source, node in code.nodes(ast.Attribute):
        model = node.value
        if node.attr not in _WEIGHTS or not isinstance(model, ast.Name) or next(source.guards(node), None):
            continue
        made = source.assigned(model)
        if (
            len(made) != 1
            or not _is_shapeless(source, made[0].value)
            or made[0].function is not source.function_of(node)
        ):
            continue
        before = (each for each in source.all_nodes if isinstance(each, ast.Name) and each.id == model.id)
        seen = [each for each in before if isinstance(each.ctx, ast.Load) and not _asks_for_weights(source, each)]
        if all(each.lineno > node.lineno for each in seen):
            yield finding("weights-missing", source.at(node), written=ast.unparse(node))
            return


def _asks_for_weights(source: SourceFile, name: ast.Name) -> bool:
    outer = source.parents.get(name)
    return isinstance(outer, ast.Attribute) and outer.attr in (*_WEIGHTS, "compile")


def _is_shapeless(source: SourceFile, made: ast.AST) -> bool:
    """Return whether a model is a Sequential whose first layer is one of Keras's that learns its shape from data."""
    match made:
        case ast.Call(args=[ast.List(elts=[ast.Call() as first, *_])]) if source.last(made) == "Sequential":
            known = {each.arg for each in first.keywords}
            layer = matches(source.dotted(first.func), ("tensorflow.keras.layers.*", "keras.layers.*"))
            return layer and source.last(first) in _SHAPELESS and not known & {None, *_SHAPES}
    return False


def _of_loops(case: Case) -> Iterator[Finding]:
    code = case.code
    applies = code.call(".apply_gradients")
    runs = any(not matches(use.name, ("subprocess.*", *_STARTERS)) for use in code.uses(*_RUNS))
    runs = runs or code.call(*_EXCHANGES) is not None
    if applies and code.call(".GradientTape") and not runs and not code.imports(*HOROVOD, "mpi4py*", "keras_tuner*"):
        yield finding("no-strategy-run", applies.place)


def _trained(code: UserProgram, scopes: "Scopes") -> Iterator[tuple[SourceFile, ast.AST]]:
    """Yield the expressions whose weights are trained: `model` in `model.fit(...)`, or a model that gets gradients."""
    for source, call in code.nodes(ast.Call):
        if isinstance(call.func, ast.Attribute) and call.func.attr in _FITS:
            yield source, call.func.value
        elif source.last(call) in _UPDATES:
            given = [node for each in (*call.args, *call.keywords) for node in ast.walk(each)]
            kept = [value for node in given if isinstance(node, ast.Name) for value in scopes.values(source, node)]
            given += [node for value in kept for node in ast.walk(value)]
            for node in given:
                if isinstance(node, ast.Attribute) and node.attr in _TRAINED:
                    yield source, node.value


class Scopes:
    """Find where the parts of a program run: in a strategy's scope, outside of every scope, or unknown."""

    def __init__(self, code: UserProgram, environment: Mapping[str, str] | None = None) -> None:
        self._code, self._environment = code, environment
        self._functions: dict[str, list[tuple[SourceFile, Function]]] = {}
        self._classes: dict[str, list[tuple[SourceFile, ast.ClassDef]]] = {}
        for source in code.sources:
            for node in source.all_nodes:
                if isinstance(node, Function):
                    self._functions.setdefault(node.name, []).append((source, node))
                elif isinstance(node, ast.ClassDef):
                    self._classes.setdefault(node.name, []).append((source, node))
        self._asked: set[ast.AST] = set()  # functions whose callers are being followed
        # A scope may be entered by an ExitStack, or set for all that follows.
        self.is_unusual = (
            code.has(".experimental_set_strategy")
            or any(not _is_of_with(use.source, use.node) for use in code.calls(".scope"))
            or any(
                self._is_scope(use.source, entered) is not False
                for use in code.calls(".__enter__", ".enter_context")
                if isinstance(use.node, ast.Call) and isinstance(use.node.func, ast.Attribute)
                for entered in (*use.node.args, use.node.func.value)[:1]
            )
        )

    # --- where a node runs ---

    def is_in(self, source: SourceFile, node: ast.AST) -> bool | None:
        """Return whether a node runs in a scope; None if that is not known, or differs between calls."""
        for outer, inner in source.way_up(node):
            if isinstance(outer, ast.With | ast.AsyncWith):
                entered = {self._is_scope(source, item.context_expr) for item in outer.items}
                if entered != {False}:
                    return True if True in entered else None
            elif isinstance(outer, Function):
                return self._is_called_in(source, outer)
            elif isinstance(outer, ast.Lambda | ast.IfExp | ast.ExceptHandler) or (
                isinstance(outer, ast.If) and self._may_be_other(source, outer, inner)
            ):
                return None
        return False

    def _is_scope(self, source: SourceFile, context: ast.AST, depth: int = 0) -> bool | None:
        """Return whether a context is a strategy's scope; None if that is not known, as for a parameter."""
        calls = [source.dotted(call.func) for call in calls_in(context)]
        if any("scope" in name.rpartition(".")[2] and not matches(f".{name}", _OTHER_SCOPES) for name in calls):
            return True
        if isinstance(context, ast.Call):  # a function of the user's may return one; a library's does not
            return source.last(context) in self._functions
        if depth > _DEPTH or not isinstance(context, ast.Name | ast.Attribute):
            return None
        found = {self._is_scope(source, value, depth + 1) for value in self.values(source, context)}
        return True if True in found else False if found == {False} else None

    def _is_taken(self, source: SourceFile, branch: ast.If, inner: ast.AST) -> bool | None:
        """Return whether the job takes a branch that depends on an environment variable; None if that is unknown."""
        match branch.test:
            case ast.Compare(left=ast.Call() as ask, ops=[ast.Eq()], comparators=[ast.Constant(value=str(wanted))]):
                asked = source.dotted(ask.func) in ("os.environ.get", "os.getenv") and texts_of(ask.args)
            case ast.Compare(
                left=ast.Subscript(value=ast.Attribute(attr="environ"), slice=ast.Constant(value=str(name))),
                ops=[ast.Eq()],
                comparators=[ast.Constant(value=str(wanted))],
            ):
                asked = [name]
            case _:
                return None
        if not asked or self._environment is None or asked[0].startswith(("SM_", "TF_")):
            return None
        value = self._environment.get(asked[0], asked[1] if len(asked) > 1 else None)
        return (value == wanted) == (inner not in branch.orelse)

    def _is_never_run(self, source: SourceFile, node: ast.AST) -> bool:
        way = source.way_up(node)
        return any(isinstance(outer, ast.If) and self._is_taken(source, outer, inner) is False for outer, inner in way)

    def _may_be_other(self, source: SourceFile, branch: ast.If, inner: ast.AST) -> bool:
        """Return whether another branch of the condition may enter a scope.

        Code behind a branch that leaves counts as a branch, too.
        """
        if is_main_guard(branch) or self._is_taken(source, branch, inner) is not None:
            return False
        taken, other = (branch.orelse, branch.body) if inner in branch.orelse else (branch.body, branch.orelse)
        if any(self._may_enter(source, each) for each in other):
            return True
        if any(source.last(call) in self._functions for each in other for call in calls_in(each)) and other:
            return True  # whose functions may have one
        return bool(taken) and (
            isinstance(taken[-1], ast.Return | ast.Raise | ast.Continue | ast.Break)
            or any(source.last(call) in ("exit", "_exit", "quit") for call in calls_in(taken[-1]))
        )

    def _may_enter(self, source: SourceFile, node: ast.AST) -> bool:
        entered = (each.items for each in ast.walk(node) if isinstance(each, ast.With | ast.AsyncWith))
        return any(self._is_scope(source, item.context_expr) is not False for items in entered for item in items)

    def _is_decorated(self, source: SourceFile, function: Function) -> bool:
        """Return whether a decorator may run a function in a scope."""
        names = [source.dotted(getattr(each, "func", each)) for each in function.decorator_list]
        return not all(matches(name, _DECORATORS) for name in names)

    def _is_called_in(self, source: SourceFile, function: Function) -> bool | None:
        if function in self._asked or len(self._asked) > _DEPTH or self._is_decorated(source, function):
            return None
        self._asked.add(function)
        try:
            sites = self._sites(source, function)
            found = {None if site is None else self.is_in(where, site) for where, site in sites}
        finally:
            self._asked.discard(function)
        return found.pop() if len(found) == 1 else None

    def _sites(self, source: SourceFile, function: Function) -> Iterator[tuple[SourceFile, ast.AST | None]]:
        """Yield the calls of a function; None for each place that passes the function on."""
        for each in self._code.sources:
            for use in each.uses:
                if use.kind is UseKind.IMPORT or not self._is_of(source, function, each, use.node):
                    continue
                outer = each.parents.get(use.node)
                if use.kind is UseKind.CALL:
                    yield each, use.node
                elif isinstance(outer, ast.Call) and matches(each.dotted(outer.func), _STARTERS):
                    yield each, outer
                elif not (isinstance(outer, ast.Call) and use.node is outer.func):  # that call is among the uses
                    yield each, None

    def _is_of(self, source: SourceFile, function: Function, where: SourceFile, node: ast.AST) -> bool:
        """Return whether a call or a name refers to this function. Its class's name refers to `__init__`."""
        name = where.dotted(node.func if isinstance(node, ast.Call) else node)
        before, _, last = name.rpartition(".")
        of = source.parents.get(function)
        if not isinstance(of, ast.ClassDef) or function.name == "__init__":
            wanted = of.name if isinstance(of, ast.ClassDef) else function.name
            return last == wanted and (not before or before.rpartition(".")[2] == source.path.stem)
        if last != function.name or not isinstance(func := getattr(node, "func", node), ast.Attribute):
            return False
        if before == "self":
            return of in where.around(node)
        if isinstance(func.value, ast.Call) and where.last(func.value) == of.name:
            return True
        made = self.values(where, func.value) if isinstance(func.value, ast.Name | ast.Attribute) else []
        return any(isinstance(value, ast.Call) and where.last(value) == of.name for value in made)

    # --- where a value comes from ---

    def made(
        self, source: SourceFile, node: ast.AST, depth: int = 0, *, within: bool = False
    ) -> list[tuple[SourceFile, ast.AST]]:
        """Return the calls that make a model, if all possible makers are known to run outside of every scope.

        With `within`, return the calls that are known to run in a scope instead.
        """
        if depth > _DEPTH:
            return []
        if isinstance(node, ast.Name | ast.Attribute):
            if values := self.values(source, node):
                return _joined([self.made(source, value, depth + 1, within=within) for value in values], within)
            return self._of_argument(source, node, depth, within) if isinstance(node, ast.Name) else []
        if not isinstance(node, ast.Call):
            return []
        enters = any(self._may_enter(*each) for each in self._functions.get(source.last(node), ()))
        if enters or not self._makes_model(source, node, depth):
            return [(source, node)] if enters and within else []
        return [(source, node)] if self.is_in(source, node) is within else []

    def _of_argument(
        self, source: SourceFile, node: ast.Name, depth: int, within: bool
    ) -> list[tuple[SourceFile, ast.AST]]:
        """Judge a parameter as `made` does, by the argument that each caller passes."""
        function = source.function_of(node)
        if function is None:
            return []
        names = parameters(function)
        if node.id not in names:
            return []
        method = isinstance(source.parents.get(function), ast.ClassDef)
        at, found = names.index(node.id) - method, list[list[tuple[SourceFile, ast.AST]]]()
        for where, site in self._sites(source, function):
            if not isinstance(site, ast.Call):
                return []
            given = next((each.value for each in site.keywords if each.arg == node.id), None)
            given = given or (site.args[at] if 0 <= at < len(site.args) else None)
            found.append(self.made(where, given, depth + 1, within=within) if given else [])
        return _joined(found, within)

    def values(self, source: SourceFile, node: ast.Name | ast.Attribute) -> list[ast.AST]:
        """Return the values assigned to a name, without assignments that the job's environment rules out."""
        return [each.value for each in source.assigned(node) if not self._is_never_run(source, each.node)]

    def _makes_model(self, source: SourceFile, call: ast.Call, depth: int) -> bool:
        """Return whether a call makes a model, and does not open a scope of its own for it."""
        name = source.dotted(call.func)
        last = name.rpartition(".")[2]
        if matches(name, (*_MODELS, *_APPLICATIONS)) or name in ("Sequential", "Model"):
            return True
        for where, of in self._classes.get(last, ()):
            return any(matches("." + where.dotted(base), _MODEL_CLASSES) for base in of.bases)
        bodies = [each for each in self._functions.get(last, ()) if self._is_of(*each, source, call)]
        if len(bodies) != 1 or depth > _DEPTH:
            return False
        where, body = bodies[0]
        if self._may_enter(where, body) or self._is_decorated(where, body):
            return False
        returned = [each.value for each in ast.walk(body) if isinstance(each, ast.Return) and each.value]
        return any(self._returns_model(where, value, depth + 1) for value in returned)

    def _returns_model(self, source: SourceFile, value: ast.AST, depth: int) -> bool:
        if depth > _DEPTH:
            return False
        if isinstance(value, ast.Tuple):
            return any(self._returns_model(source, each, depth + 1) for each in value.elts)
        if isinstance(value, ast.Name):
            return any(self._returns_model(source, each, depth + 1) for each in self.values(source, value))
        return isinstance(value, ast.Call) and self._makes_model(source, value, depth + 1)


def _joined(found: list[list[tuple[SourceFile, ast.AST]]], within: bool) -> list[tuple[SourceFile, ast.AST]]:
    known = any(found) if within else bool(found) and all(found)
    return [each for some in found for each in some] if known else []


def _is_of_with(source: SourceFile, node: ast.AST) -> bool:
    """Return whether an expression is part of a `with`, or is kept or returned for a later `with`."""
    kinds = ast.withitem | ast.Assign | ast.Return | ast.stmt
    return not isinstance(next((each for each in source.around(node) if isinstance(each, kinds)), None), ast.Expr)
