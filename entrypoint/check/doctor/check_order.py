"""Check for code that never runs, runs too early for a strategy, or runs on one process alone."""

import ast
from collections.abc import Iterator

from entrypoint.check.doctor.rulebook import finding
from entrypoint.check.doctor.subject import Case
from entrypoint.check.finding import Finding
from entrypoint.launcher.job.job import Mode
from entrypoint.usercode.api_names import WORKERS
from entrypoint.usercode.source import SourceFile, Use, calls_in, is_main_guard, matches, value_of

# Calls by which TensorFlow begins to compute, after which no strategy of several workers can be made.
_COMPUTES = (
    *("tensorflow.constant", "tensorflow.Variable", "tensorflow.zeros", "tensorflow.ones", "tensorflow.range"),
    *("tensorflow.convert_to_tensor", "tensorflow.cast", "tensorflow.random.normal", "tensorflow.random.uniform"),
    *("tensorflow.data.Dataset.from_*", "tensorflow.data.Dataset.range", "tensorflow.data.TFRecordDataset"),
    *("tensorflow.keras.Sequential", "tensorflow.keras.Model", "tensorflow.keras.models.*", "keras.Sequential"),
    *("tensorflow.keras.applications.*", "tensorflow.config.list_logical_devices", "tensorflow.config.experimental."
      "list_logical_devices", "tensorflow.test.is_gpu_available", "tensorflow.test.gpu_device_name"),
)  # fmt: skip
# Calls in which all processes of a mode take part.
_OF_ALL = {
    Mode.MPI: (
        *("horovod.*.allreduce", "horovod.*.allgather", "horovod.*.broadcast", "horovod.*.broadcast_variables"),
        *("horovod.*.broadcast_object", "horovod.*.broadcast_global_variables", "horovod.*.barrier"),
        *("sagemaker_tf_data.*end_together", "sagemaker_tf_data.*even_steps"),
    ),
    Mode.MWMS: (".fit", ".evaluate"),
}
_FIRST = ("rank", "task_id", "process_index", "task_index", "is_chief", "is_master", "is_main", "chief")


def of_order(case: Case) -> Iterator[Finding]:
    """Yield code that never runs, code that runs before a strategy is made, and code that one process runs alone."""
    yield from _never_run(case)
    if case.together(Mode.MWMS):
        for use in case.code.made(*WORKERS):
            if early := _computed_before(use):
                yield finding("before-strategy", use.place, strategy=use.name.rpartition(".")[2], early=early.written)
    for mode, patterns in _OF_ALL.items():
        uses = list(case.code.calls(*patterns)) if case.together(mode) and case.job else []
        alone = [use for use in uses if _is_of_first(use)]
        # Where another process makes such a call, too, elsewhere, the two may meet.
        shared = {use.name.rpartition(".")[2] for use in uses if use not in alone}
        for use in alone:
            if use.name.rpartition(".")[2] not in shared and (mode is Mode.MPI or _is_in_scope(use)):
                yield finding("one-process-alone", use.place, written=use.written)


def _is_in_scope(use: Use) -> bool:
    """Return whether a method is one of an object that is made in the scope of a strategy."""
    made = use.node.func.value if isinstance(use.node, ast.Call) and isinstance(use.node.func, ast.Attribute) else None
    if not isinstance(made, ast.Name):
        return False
    around = (outer for each in use.source.assigned(made) for outer in use.source.around(each.node))
    blocks = (outer for outer in around if isinstance(outer, ast.With))
    return any(".scope()" in ast.unparse(item.context_expr) for block in blocks for item in block.items)


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


def _computed_before(use: Use) -> Use | None:
    """Return a call by which TensorFlow computes before the strategy is made, in the same function or module."""
    source, function = use.source, use.source.function_of(use.node)
    if next(source.guards(use.node), None):
        return None
    for each in source.uses:
        if each.place.line >= use.place.line or not isinstance(each.node, ast.Call):
            continue
        within = source.function_of(each.node)
        if any(isinstance(outer, ast.Lambda) for outer in source.around(each.node)):
            continue
        if within in (None, function) and not next(source.guards(each.node), None):
            own = source.own_function(each.node)
            if matches(each.name, _COMPUTES) or (own and _computes(source, own)):
                return each
    return None


def _computes(source: SourceFile, function: ast.FunctionDef) -> bool:
    is_graph = any("function" in ast.unparse(each) for each in function.decorator_list)
    calls = [call for call in calls_in(function) if source.function_of(call) is function]
    later = [call for call in calls if any(isinstance(outer, ast.Lambda) for outer in source.around(call))]
    return not is_graph and any(matches(source.dotted(call.func), _COMPUTES) for call in calls if call not in later)


def _is_of_first(use: Use) -> bool:
    """Return whether a call runs on the first process alone: behind `if rank == 0`, or `if chief` that means it."""
    for guard, inner in use.source.way_up(use.node):
        if isinstance(guard, ast.If) and inner in guard.body and not is_main_guard(guard):
            test = guard.test
            if isinstance(test, ast.Name):
                values = [each.value for each in use.source.assigned(test)]
                test = values[0] if len(values) == 1 and isinstance(values[0], ast.expr) else test
            if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Eq) and value_of(test.comparators[0]) == 0:
                name = test.left.func if isinstance(test.left, ast.Call) else test.left
                if use.source.last(name) in _FIRST:
                    return True
    return False
