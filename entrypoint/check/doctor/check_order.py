"""Check for code that never runs, runs too early for a strategy, or runs on one process alone."""

import ast
from collections.abc import Iterator

from entrypoint.check.doctor.rulebook import finding
from entrypoint.check.doctor.subject import Case
from entrypoint.check.finding import Finding
from entrypoint.launcher.job.job import Mode
from entrypoint.usercode.api_names import AVERAGES, JOINS_JAX, LEAVES, WORKERS
from entrypoint.usercode.source import SourceFile, Use, calls_in, is_main_guard, matches, value_of

# Calls by which TensorFlow begins to compute, after which no strategy of several workers can be made, and no thread or
# GPU be set up.
_COMPUTES = (
    *("tensorflow.constant", "tensorflow.Variable", "tensorflow.zeros", "tensorflow.ones", "tensorflow.range"),
    *("tensorflow.convert_to_tensor", "tensorflow.cast", "tensorflow.random.normal", "tensorflow.random.uniform"),
    *("tensorflow.data.Dataset.from_*", "tensorflow.data.Dataset.range", "tensorflow.data.TFRecordDataset"),
    *("tensorflow.keras.Sequential", "tensorflow.keras.Model", "tensorflow.keras.models.*", "keras.Sequential"),
    *("tensorflow.keras.applications.*", "tensorflow.config*.list_logical_devices", "tensorflow.reduce_*"),
    *("tensorflow.nn.*", "tensorflow.math.*", "tensorflow.matmul", "tensorflow.keras.metrics.*"),
)  # fmt: skip
_JAX_COMPUTES = (
    *("jax.numpy.*", "jax.random.*", "jax.devices", "jax.local_devices", "jax.device_count", "jax.device_put"),
    *("jax.local_device_count", "jax.process_index", "jax.process_count"),
)
_KNOWS_TYPES = ("jax.numpy.finfo", "jax.numpy.iinfo", "jax.numpy.dtype", "jax.numpy.issubdtype")  # computes nothing
_SETS_THREADS = (".set_inter_op_parallelism_threads", ".set_intra_op_parallelism_threads")
_SETS_GPUS = (".set_memory_growth", ".set_logical_device_configuration", ".set_virtual_device_configuration")
# Calls in which all processes of a mode take part.
_OF_ALL = {
    Mode.MPI: (
        *("horovod.*.allreduce", "horovod.*.allgather", "horovod.*.broadcast", "horovod.*.broadcast_variables"),
        *("horovod.*.broadcast_object", "horovod.*.broadcast_global_variables", "horovod.*.barrier"),
        *("sagemaker_tf_data.*end_together", "sagemaker_tf_data.*even_steps"),
    ),
    Mode.MWMS: (".fit", ".evaluate"),
}
_STEPS = (".fit", ".train_on_batch", "horovod.*.DistributedGradientTape")
_WAYS = {Mode.MPI: AVERAGES, Mode.MWMS: WORKERS}
_FIRST = ("rank", "task_id", "process_index", "task_index", "is_chief", "is_master", "is_main", "chief")


def of_order(case: Case) -> Iterator[Finding]:
    """Yield code that never runs, code that runs before a strategy is made, and code that one process runs alone."""
    yield from _never_run(case)
    for rule, names, computes in _first_of_all(case):
        for use in case.code.made(*names):
            if early := _computed_before(use, computes):
                yield finding(rule, use.place, strategy=use.last, early=early.written)
                break
    for mode, patterns in _OF_ALL.items():
        uses = list(case.code.calls(*patterns)) if case.together(mode) and case.job else []
        alone = [use for use in uses if _is_of_first(use)]
        # Where another process makes such a call, too, elsewhere, the two may meet.
        shared = {use.last for use in uses if use not in alone}
        for use in alone:
            if use.last not in shared and (mode is Mode.MPI or _is_of_scope(use)):
                yield finding("one-process-alone", use.place, written=use.written)
    yield from _of_leaving(case)


def _first_of_all(case: Case) -> Iterator[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    """Yield (rule, calls, what must not run before these)."""
    if case.together(Mode.MWMS):
        yield "before-strategy", WORKERS, _COMPUTES
    if case.together(Mode.JAX):
        yield "before-strategy/jax", JOINS_JAX, _JAX_COMPUTES
    sets_gpus = _SETS_GPUS if case.gpus and not case.hides_gpus else ()
    yield "set-too-late", (*_SETS_THREADS, *sets_gpus), _COMPUTES


def _of_leaving(case: Case) -> Iterator[Finding]:
    """Yield a condition that ends all processes but the first, before steps in which all take part."""
    for mode, of_all in _OF_ALL.items():
        if not (case.job and case.together(mode) and case.code.has(*_WAYS[mode])):
            continue
        steps = [use for use in case.code.calls(*_STEPS) if mode is Mode.MPI or _is_of_scope(use)]
        for use in [*steps[:1], *(case.code.calls(*of_all) if mode is Mode.MPI else ())]:
            blocks = (
                each.body for each in use.source.around(use.node) if isinstance(each, ast.Module | ast.FunctionDef)
            )
            before = [node for node in next(blocks) if isinstance(node, ast.If) and node.lineno < use.place.line]
            for node in before:
                if _leaves(use.source, node) and _is_of_others(use.source, node.test):
                    yield finding("one-process-alone/left", use.source.at(node.body[-1]), written=use.written)
                    return


def _leaves(source: SourceFile, node: ast.If) -> bool:
    """Return whether a branch ends the process."""
    last = node.body[-1]
    call = last.exc if isinstance(last, ast.Raise) else last.value if isinstance(last, ast.Expr) else None
    name = source.dotted(getattr(call, "func", call)) if call else ""
    return not node.orelse and name in (*LEAVES, "SystemExit")


def _is_of_others(source: SourceFile, test: ast.expr) -> bool:
    """Return whether a condition holds in all processes but the first: `rank() > 0`, `rank() != 0`, `not chief`."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _holds_on_first(source, test.operand)
    match test:
        case ast.Compare(left=left, ops=[ast.Gt() | ast.NotEq()], comparators=[ast.Constant(value=0)]):
            return _is_rank(source, left)
        case ast.Compare(left=left, ops=[ast.GtE()], comparators=[ast.Constant(value=1)]):
            return _is_rank(source, left)
    return isinstance(test, ast.Call) and _is_rank(source, test)


def _is_rank(source: SourceFile, node: ast.expr) -> bool:
    return source.last(node) in _FIRST


def _is_of_scope(use: Use) -> bool:
    """Return whether a method is one of an object that is made in the scope of a strategy."""
    return isinstance(use.of, ast.Name) and is_in_scope(use.source, use.of)


def is_in_scope(source: SourceFile, name: ast.Name) -> bool:
    """Return whether all that a name may stand for is made in the scope of a strategy."""
    made = [
        [outer for outer in source.around(each.node) if isinstance(outer, ast.With)] for each in source.assigned(name)
    ]
    entered = ([item.context_expr for block in blocks for item in block.items] for blocks in made)
    return bool(made) and all(any(".scope()" in ast.unparse(each) for each in contexts) for contexts in entered)


def _never_run(case: Case) -> Iterator[Finding]:
    """Yield a guard that never holds, and a program that only defines functions."""
    source = case.code.main
    if case.job is None:
        return
    for node in source.tree.body:
        match node:
            case ast.If(test=ast.Compare(left=ast.Name("__name__"), ops=[ast.Eq()], comparators=[ast.Constant(asked)])):
                if asked not in ("__main__", "__mp_main__"):
                    yield finding("main-never-runs/guard", source.at(node), asked=repr(asked))
    defines = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom
    body = [node for node in source.tree.body if not (isinstance(node, ast.Expr) and value_of(node.value) is not None)]
    functions = [node for node in body if isinstance(node, ast.FunctionDef)]
    runs = [node for node in body if not isinstance(node, defines | ast.Assign | ast.AnnAssign)]
    calls = any(any(calls_in(node)) for node in body if isinstance(node, ast.Assign | ast.AnnAssign | ast.ClassDef))
    decorated = any(node.decorator_list for node in functions)
    own = len(case.code.sources) > 1  # modules of the user's, which may do the work when they are imported
    if functions and not (runs or calls or decorated or own):
        yield finding("main-never-runs", source.at(functions[-1]), name=functions[-1].name)


def _computed_before(use: Use, computes: tuple[str, ...]) -> Use | None:
    """Return a call that computes before another, in the same function or module."""
    source, function = use.source, use.source.function_of(use.node)
    if any(
        not (isinstance(each, ast.If) and "gpu" in ast.unparse(each.test).lower()) for each in source.guards(use.node)
    ):
        return None
    for each in source.uses:
        if each.place.line >= use.place.line or not isinstance(each.node, ast.Call):
            continue
        within = source.function_of(each.node)
        if any(isinstance(outer, ast.Lambda) for outer in source.around(each.node)):
            continue
        if within in (None, function) and not next(source.guards(each.node), None):
            own = source.own_function(each.node)
            if _is_one_of(each.name, computes) or (own and _computes(source, own, computes)):
                return each
    return None


def _is_one_of(name: str, computes: tuple[str, ...]) -> bool:
    return matches(name, computes) and name not in _KNOWS_TYPES


def _computes(source: SourceFile, function: ast.FunctionDef, computes: tuple[str, ...]) -> bool:
    is_graph = any("function" in ast.unparse(each) for each in function.decorator_list)
    calls = [call for call in calls_in(function) if source.function_of(call) is function]
    later = [call for call in calls if any(isinstance(outer, ast.Lambda) for outer in source.around(call))]
    return not is_graph and any(_is_one_of(source.dotted(call.func), computes) for call in calls if call not in later)


def _is_of_first(use: Use) -> bool:
    """Return whether a call runs on the first process alone: behind `if rank == 0`, or `if chief` that means it."""
    for guard, inner in use.source.way_up(use.node):
        branch = guard if isinstance(guard, ast.If) and not is_main_guard(guard) else None
        if branch and inner in branch.body and _holds_on_first(use.source, branch.test):
            return True
    return False


def _holds_on_first(source: SourceFile, test: ast.expr) -> bool:
    if isinstance(test, ast.Name):
        values = [each.value for each in source.assigned(test)]
        test = values[0] if len(values) == 1 and isinstance(values[0], ast.expr) else test
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Eq) and value_of(test.comparators[0]) == 0:
        return _is_rank(source, test.left)
    return False
