"""Check whether the gradients of a strategy's workers are those of the mean over the batch of all of them."""

import ast
import re
from collections.abc import Iterator

from entrypoint.check.doctor.check_data import drops_remainder
from entrypoint.check.doctor.rulebook import finding
from entrypoint.check.doctor.subject import Case
from entrypoint.check.finding import Finding
from entrypoint.launcher.job.job import Mode
from entrypoint.usercode.api_names import WORKERS
from entrypoint.usercode.datasets import call_of, function_named, stands_for
from entrypoint.usercode.reader import UserProgram
from entrypoint.usercode.source import SourceFile, Use, calls_in, matches, value_of


def of_losses(case: Case) -> Iterator[Finding]:
    """Yield losses that are scaled wrongly, or that Keras refuses in a strategy's step."""
    if case.together(Mode.MWMS) and case.code.has(".MultiWorkerMirroredStrategy"):
        yield from _of_scales(case)
    always = case.code.has(*WORKERS, ".MirroredStrategy") and not case.code.has(".get_strategy")
    if case.tensorflow < (2, 16) and always:
        yield from _of_reductions(case)


def _of_scales(case: Case) -> Iterator[Finding]:
    """Yield losses whose gradients, summed over the workers, are not those of the mean over the batch of all."""
    spread = [each for each in case.pipelines if each.step("experimental_distribute_dataset")]
    for source, step in _run_by_strategies(case.code):
        losses = list(_losses(source, step))
        means = [each for each in losses if _is_mean(each)]
        within = {step, *(source.function_of(each.node) for each in losses)}
        text = " ".join(ast.unparse(each) for each in within if each)
        scaled = re.search(r"/|num_replicas|global_batch|compute_average_loss|scale|all_reduce|reciprocal|aggreg", text)
        if means and not scaled and not case.code.mentions(r"(?<!/)/ *\(?[\w.]*(replicas|workers|world)"):
            yield finding("loss-scale", means[0].place, written=means[0].written)
        elif (
            means
            and scaled
            and any(not {"repeat", "take"} & {*each.names} and not drops_remainder(each) for each in spread)
        ):
            yield finding("empty-mean", means[0].place, written=means[0].written)
        for each in losses:
            batches = {_number(data.step("batch"), "batch_size") for data in spread}
            size = _number(each, "global_batch_size") if each.last == "compute_average_loss" else None
            if size and None not in batches and len(batches) == 1 and size not in batches:
                asked = ast.unparse(each.argument("global_batch_size") or each.node)
                batch = spread[0].step("batch")
                assert batch is not None
                of_all = ast.unparse(batch.argument("batch_size", 0) or batch.node)
                yield finding("loss-scale/other-batch", each.place, asked=asked, batch=of_all)


def _of_reductions(case: Case) -> Iterator[Finding]:
    """Yield losses of Keras 2 that a strategy's step calls, and that are to average themselves: Keras refuses that."""
    for source, step in _run_by_strategies(case.code):
        for use in _losses(source, step):
            called = use.node.func if isinstance(use.node, ast.Call) else use.node
            made = stands_for(source, called) if isinstance(called, ast.Name) else None
            if not (isinstance(made, ast.Call) and re.search(r"keras\.losses\.[A-Z]", source.dotted(made.func))):
                continue
            given = " ".join(ast.unparse(each) for each in (*made.args, *made.keywords))
            asks, by_itself = re.search(r"(?i)reduction|none|sum|\*", given), r"(?i)\b(auto|sum_over_batch_size)\b"
            if not asks or re.search(by_itself, given):
                yield finding("loss-reduction", source.at(made), written=call_of(source, made).written)


def _run_by_strategies(code: UserProgram) -> Iterator[tuple[SourceFile, ast.FunctionDef]]:
    for use in code.calls(".run"):
        step = function_named(use.source, next(iter(getattr(use.node, "args", ())), use.node))
        if isinstance(step, ast.FunctionDef) and re.search("(?i)strat", use.name):
            yield use.source, step


def _losses(source: SourceFile, step: ast.FunctionDef) -> Iterator[Use]:
    """Yield the calls in the values of the names whose gradient a function takes."""
    gradients = [call for call in calls_in(step) if source.last(call) == "gradient" and call.args]
    names = {call.args[0].id for call in gradients if isinstance(call.args[0], ast.Name)}
    for node in ast.walk(step):
        if isinstance(node, ast.Assign) and {each.id for each in node.targets if isinstance(each, ast.Name)} & names:
            for call in calls_in(node.value):
                own = function_named(source, call.func)
                inner = calls_in(own) if isinstance(own, ast.FunctionDef) else ()
                yield from (call_of(source, each) for each in (call, *inner))


def _is_mean(use: Use) -> bool:
    """Return whether a call takes the mean over the rows of a batch."""
    axis = use.argument("axis", 1)
    return matches(use.name, ("tensorflow.reduce_mean", "tensorflow.math.reduce_mean", "*keras.backend.mean")) and (
        axis is None or value_of(axis) == 0
    )


def _number(use: Use | None, name: str) -> int | None:
    """Return an argument's number, in which the number of replicas counts as a large prime; None if it is not known."""
    node = use.argument(name, 0 if name == "batch_size" else None) if use else None
    return _computed(use.source, node) if use and node else None


def _computed(source: SourceFile, node: ast.AST) -> int | None:
    if isinstance(node, ast.Name) and isinstance(value := stands_for(source, node), ast.expr):
        return _computed(source, value)
    if isinstance(node, ast.Attribute) and node.attr == "num_replicas_in_sync":
        return 1_000_003
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        left, right = _computed(source, node.left), _computed(source, node.right)
        return left * right if left and right else None
    found = source.constant(node)
    return found if isinstance(found, int) else None
