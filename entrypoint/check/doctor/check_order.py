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
        if case.together(mode) and case.job:
            for use in case.code.calls(*patterns):
                if _is_of_first(use):
                    yield finding("one-process-alone", use.place, written=use.written)


def _never_run(case: Case) -> Iterator[Finding]:
    """Yield a guard that never holds, and a program that only defines functions."""
    source = case.code.main
    for node in source.tree.body:
        if isinstance(node, ast.If) and isinstance(node.test, ast.Compare) and "__name__" in ast.unparse(node.test):
            asked = value_of(node.test.comparators[0])
            if isinstance(asked, str) and asked != "__main__" and isinstance(node.test.ops[0], ast.Eq):
                yield finding("main-never-runs/guard", source.at(node), asked=repr(asked))
    assigns = ast.Assign | ast.AnnAssign
    defines = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom | assigns
    body = [node for node in source.tree.body if not (isinstance(node, ast.Expr) and value_of(node.value) is not None)]
    functions = [node for node in body if isinstance(node, ast.FunctionDef)]
    runs = [node for node in body if not isinstance(node, defines)]
    calls = any(isinstance(node, assigns) and any(calls_in(node)) for node in body)
    decorated = any(node.decorator_list for node in functions)
    if functions and not (runs or calls or decorated):
        yield finding("main-never-runs", source.at(functions[-1]), name=functions[-1].name)


def _computed_before(use: Use) -> Use | None:
    """Return a call that has TensorFlow compute before the strategy is made, in the same function or module."""
    source, function = use.source, use.source.function_of(use.node)
    if next(source.guards(use.node), None):
        return None
    for each in source.uses:
        if each.place.line >= use.place.line or not isinstance(each.node, ast.Call):
            continue
        within = source.function_of(each.node)
        if within in (None, function) and not next(source.guards(each.node), None):
            own = next(
                (node for node in source.tree.body if isinstance(node, ast.FunctionDef) and node.name == each.name),
                None,
            )
            if matches(each.name, _COMPUTES) or (own and _computes(source, own)):
                return each
    return None


def _computes(source: SourceFile, function: ast.FunctionDef) -> bool:
    is_graph = any("function" in ast.unparse(each) for each in function.decorator_list)
    return not is_graph and any(matches(source.dotted(call.func), _COMPUTES) for call in calls_in(function))


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
