"""Follow a dataset through the code, from what it reads to where it is used. What is not sure is not followed."""

import ast
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from entrypoint.usercode.api_names import READS_ROWS
from entrypoint.usercode.source import SourceFile, Use, UseKind, matches

OURS = "sagemaker_tf_data."
OWN_SHARDS = (f"{OURS}shard", f"{OURS}sharding.shard")
PIPES = (f"{OURS}pipe_dataset", f"{OURS}pipe.pipe_dataset")
_OF_FILES = ("TFRecordDataset", "TextLineDataset", "FixedLengthRecordDataset", "CsvDataset", "pipe_dataset")
_MAKES = (
    *(*READS_ROWS, *PIPES, ".from_tensor_slices", ".from_tensors", ".Dataset.range"),
    *(f"{OURS}file_names", f"{OURS}image_records", f"{OURS}protobuf_records"),
)
_METHODS = {
    *("batch", "cache", "concatenate", "enumerate", "filter", "flat_map", "ignore_errors", "interleave", "map"),
    *("padded_batch", "prefetch", "ragged_batch", "rebatch", "repeat", "shard", "shuffle", "skip", "snapshot", "take"),
    *("take_while", "unbatch", "window", "with_options"),
}
_FUNCTIONS = (f"{OURS}*shard", f"{OURS}*end_together", ".experimental_distribute_dataset", "iter", "enumerate", "tqdm*")
_LEARN = ("GradientTape", "apply_gradients", "train_on_batch", "value_and_grad")
_DEPTH = 20


class Followed(NamedTuple):
    """Hold the place where a dataset is used, and the calls that make it, the first first."""

    use: Use  # a call of `fit`, a loop, or any other call that takes it
    steps: list[Use]

    @property
    def names(self) -> list[str]:
        return [each.last for each in self.steps]

    def step(self, *names: str) -> Use | None:
        """Return the last step of one of these names."""
        return next((each for each in reversed(self.steps) if each.last in names), None)

    def behind(self, *names: str) -> list[Use]:
        """Return the steps behind the last one of these names; [] without such a step."""
        at = max((at for at, name in enumerate(self.names) if name in names), default=len(self.steps))
        return self.steps[at + 1 :]

    @property
    def reads_files(self) -> bool:
        """Return whether it reads records of files, whose number TensorFlow does not know."""
        return any(name in _OF_FILES for name in self.names)

    @property
    def is_endless(self) -> bool:
        repeats = [each for each in self.steps if each.last == "repeat" and is_endless(each)]
        return bool(repeats) and not any(each.last == "take" for each in self.behind("repeat"))


def is_endless(repeat: Use) -> bool:
    count = repeat.argument("count", 0)
    return count is None or ast.unparse(count) in ("None", "-1")


def call_of(source: SourceFile, node: ast.Call) -> Use:
    return Use(source=source, node=node, name=source.dotted(node.func), kind=UseKind.CALL)


def steps_of(source: SourceFile, node: ast.AST | None, depth: int = 0) -> list[Use]:
    """Return the calls by which a dataset is made, the first first; [] if they cannot all be followed."""
    if isinstance(node, ast.Name) and depth < _DEPTH:
        return steps_of(source, stands_for(source, node), depth + 1)
    if not isinstance(node, ast.Call) or depth >= _DEPTH:
        return []
    step, first = call_of(source, node), next(iter(node.args), None)
    if matches(step.name, _MAKES):
        return [*steps_of(source, first, depth + 1), step]
    is_step = isinstance(node.func, ast.Attribute) and node.func.attr in _METHODS and not step.name.startswith(OURS)
    if is_step or (matches(step.name, _FUNCTIONS) and first):
        before = steps_of(source, node.func.value if is_step else first, depth + 1)  # type: ignore[attr-defined]
        return [*before, step] if before else []
    if matches(step.name, (".DatasetCreator",)) and first:
        before = steps_of(source, returned(function_named(source, first)), depth + 1)
        return [*before, step] if before else []
    return steps_of(source, returned(function_named(source, node.func)), depth + 1)


def function_named(source: SourceFile, node: ast.AST) -> ast.AST | None:
    """Return the function that a name, or `self.name`, stands for if the file has one of it; else the node itself."""
    of_self = isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self"
    wanted = node.attr if of_self else getattr(node, "id", "")  # type: ignore[attr-defined]
    found = [each for each in source.all_nodes if isinstance(each, ast.FunctionDef) and each.name == wanted]
    return found[0] if len(found) == 1 else node


def returned(function: ast.AST | None) -> ast.expr | None:
    """Return the expression that a function returns; None if it has several returns or none."""
    if isinstance(function, ast.Lambda):
        return function.body
    if not isinstance(function, ast.FunctionDef):
        return None
    others = [each for each in ast.walk(function) if isinstance(each, ast.FunctionDef) and each is not function]
    inner = {each for other in others for each in ast.walk(other)}
    found = [each.value for each in ast.walk(function) if isinstance(each, ast.Return) and each not in inner]
    return found[0] if len(found) == 1 else None


def stands_for(source: SourceFile, name: ast.Name) -> ast.AST | None:
    """Return the expression that a name stands for at its place; None if there may be others."""
    origins = source.values.scopes.origins(name)
    return origins[0] if len(origins) == 1 else None


def trained(sources: Iterable[SourceFile]) -> Iterator[Followed]:
    """Yield the dataset of each call of `fit`, and of each loop that trains, if it can be followed."""
    for source in sources:
        fits = [use for use in source.uses if use.kind is UseKind.CALL and use.name.endswith(".fit")]
        found = [(use, use.argument("x", 0)) for use in fits]
        loops = (each for each in source.all_nodes if isinstance(each, ast.For))
        found += [(Use(source, each, "for", UseKind.NAME), each.iter) for each in loops if learns(source, each.body)]
        yield from (Followed(use, steps) for use, data in found if (steps := steps_of(source, data)))


def learns(source: SourceFile, body: Iterable[ast.AST]) -> bool:
    """Return whether statements train, or call a function of the file that does."""
    functions = {each.name: each for each in source.all_nodes if isinstance(each, ast.FunctionDef)}
    left, seen = list(body), set[str]()
    for part in left:  # which grows by what each calls
        for node in ast.walk(part):
            if isinstance(node, ast.Attribute) and node.attr in _LEARN:
                return True
            if isinstance(node, ast.Name) and node.id in functions and node.id not in seen:
                seen.add(node.id)
                left.append(functions[node.id])
    return False
