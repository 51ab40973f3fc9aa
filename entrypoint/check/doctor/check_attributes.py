"""Check that a script which reads a manifest of several attributes by a pipe keeps each example's records together."""

import ast
from collections.abc import Iterator

from entrypoint.check.doctor.planned_job import s3_source
from entrypoint.check.doctor.source import Source, Use, UseKind, matches, text_of, texts_of, value_of
from entrypoint.check.doctor.subject import Case
from entrypoint.check.finding import Finding, warning

_PIPES = ("sagemaker_tf_data.pipe_dataset", "sagemaker_tf_data.pipe.pipe_dataset")
_OWN_SHARDS = ("sagemaker_tf_data.shard", "sagemaker_tf_data.sharding.shard")
_GATHERS = (".batch", ".padded_batch", ".ragged_batch", ".window")  # may join an example's records in the script itself


def of_attributes(case: Case) -> Iterator[Finding]:
    """Yield reads of a manifest with several attributes, each its own record, with missing or wrong `attributes=`."""
    attributes = _attributes(case)
    for use in case.code.calls(*_PIPES):
        assert isinstance(use.node, ast.Call)
        named = use.argument("channel", 0)
        channel = _text(use.source, named)
        read = [channel] if channel else list(attributes)  # an unknown channel may be any in Pipe mode
        wanted = [attributes.get(name, []) for name in read]
        star = any(word.arg is None for word in use.node.keywords)
        if not wanted or star or min(map(len, wanted)) < 2 or any(names != wanted[0] for names in wanted):
            continue
        names, shown = wanted[0], ", ".join(wanted[0])
        given, put = use.argument("attributes"), f"attributes=[{', '.join(map(repr, wanted[0]))}]"
        items = given.elts if isinstance(given, ast.List | ast.Tuple) else []
        if not items and (given is None or isinstance(given, ast.List | ast.Tuple)):
            if _text(use.source, use.argument("record_format", 1)) in ("RecordIO", "") and not _gathered(
                case, use, len(names)
            ):
                yield warning(
                    "attributes-missing",
                    f"channel {', '.join(map(str, read))} has AttributeNames {shown}: each is a record of its own, and "
                    "without attributes= the records of an example are shuffled and dealt out apart",
                    put,
                    place=use.place,
                )
        elif (given_names := texts_of(items)) and len(given_names) == len(items) and given_names != names:
            yield warning(
                "attributes-missing",
                f"it names the attributes {', '.join(given_names)}, and the job has AttributeNames {shown}: "
                "records get the wrong names",
                put,
                place=use.place,
            )


def _attributes(case: Case) -> dict[str, list[str]]:
    """Return the AttributeNames of each channel in Pipe mode."""
    found: dict[str, list[str]] = {}
    for name, each in case.request.channels.items():
        if (case.channels.get(name) or {}).get("TrainingInputMode") == "Pipe":
            found[name] = [str(attribute) for attribute in s3_source(each).get("AttributeNames") or []]
    return found


def _text(source: Source, node: ast.AST | None) -> str:
    """Return a string constant, or that of a name assigned once, at the file's top level; "" if it is unknown."""
    if isinstance(node, ast.Name):
        given = [
            each
            for each in ast.walk(source.tree)
            if isinstance(each, ast.Name | ast.arg)
            and getattr(each, "id", getattr(each, "arg", "")) == node.id
            and not isinstance(getattr(each, "ctx", None), ast.Load)
        ]
        outer = source.parents.get(given[0]) if len(given) == 1 else None
        top = isinstance(outer, ast.Assign) and outer in source.tree.body and outer.targets == given
        node = outer.value if top and isinstance(outer, ast.Assign) else None
    return text_of(node)


def _gathered(case: Case, use: Use, number: int) -> bool:
    """Return whether a script keeps each example's records together itself.

    It does if its first step makes batches of `number` records. If the dataset cannot be followed through the code, any
    such batch in the program counts. Without a shuffle, a shard, several processes and batches, records stay in order.
    """
    apart = case.code.has(".shuffle", ".shard", kind=UseKind.CALL) or case.processes > 1
    if not apart and not case.code.call(*_GATHERS):
        return True
    first = _first_step(use.source, use.node, number)
    if first is None:
        first = any(_has_number(each.node, number) for each in case.code.calls(*_GATHERS))
    return first


def _first_step(source: Source, node: ast.AST, number: int) -> bool | None:
    """Return True if the first step joins records, False if it separates them; None if it cannot be followed."""
    outer = source.parents.get(node)
    while isinstance(outer, ast.Attribute):
        call = source.parents.get(outer)
        if not isinstance(call, ast.Call) or call.func is not outer:
            return None
        if f".{outer.attr}" in _GATHERS:
            return _has_number(call, number)
        if outer.attr in ("shard", "shuffle"):
            return False
        node, outer = call, source.parents.get(call)
    if isinstance(outer, ast.Call) and matches(source.dotted(outer.func), _OWN_SHARDS):
        return False
    if isinstance(outer, ast.Assign) and len(outer.targets) == 1 and isinstance(outer.targets[0], ast.Name):
        scope = next((each for each in source.around(outer) if isinstance(each, ast.FunctionDef)), source.tree)
        named = [each for each in ast.walk(scope) if isinstance(each, ast.Name) and each.id == outer.targets[0].id]
        if sum(isinstance(each.ctx, ast.Store) for each in named) == 1:
            steps = [_first_step(source, each, number) for each in named if isinstance(each.ctx, ast.Load)]
            return next((step for step in steps if step is not None), None)
    return None


def _has_number(call: ast.AST, number: int) -> bool:
    """Return whether an argument of a call is this number, or is computed with it."""
    given = [*call.args, *(word.value for word in call.keywords)] if isinstance(call, ast.Call) else []
    return any(value_of(each) == number for node in given for each in ast.walk(node))
