"""Check which data each process of a job reads, how many steps it takes, and its batch size and learning rate."""

import ast
import re
from collections.abc import Iterator

from entrypoint.base.severity import Severity
from entrypoint.check.doctor.planned_job import s3_source
from entrypoint.check.doctor.rulebook import finding
from entrypoint.check.doctor.subject import Case
from entrypoint.check.finding import Finding
from entrypoint.launcher.job.job import Mode
from entrypoint.usercode.api_names import EVENS_STEPS, HOROVOD, LOGS, OUR_SHARDS, READS_ROWS, SHARDS
from entrypoint.usercode.reader import UserProgram
from entrypoint.usercode.source import SourceFile, Use, UseKind, matches, texts_of, value_of

_RANK = re.compile(r"\b(rank|size)\b")
# Calls that may take a rank as argument without reading data by it.
_NO_READERS = (*LOGS, "str", "int", "format", "broadcast", "broadcast_object")
_PIPES = ("sagemaker_tf_data.pipe_dataset", "sagemaker_tf_data.pipe.pipe_dataset")
_OWN_SHARDS = ("sagemaker_tf_data.shard", "sagemaker_tf_data.sharding.shard")
_GATHERS = (".batch", ".padded_batch", ".ragged_batch", ".window")  # may join an example's records in the script itself


def of_data(case: Case) -> Iterator[Finding]:
    """Yield data that all ranks or none read, and steps, rates and batches that do not fit the job."""
    if case.together(Mode.MPI) and case.code.imports(*HOROVOD):
        yield from _of_shards(case)
        yield from _of_steps(case)
        wrapped = case.code.call(".DistributedOptimizer", ".DistributedGradientTape")
        if wrapped and not _scales(case.code):
            yield finding("learning-rate", wrapped.place)
    yield from _of_batches(case)
    yield from _of_attributes(case)


def _sharded_by_s3(case: Case) -> list[str]:
    """Return the channels with ShardedByS3Key: each host gets a different part of these."""
    return [name for name, each in case.channels.items() if each.get("S3DistributionType") == "ShardedByS3Key"]


def _of_shards(case: Case) -> Iterator[Finding]:
    code = case.code
    reads = code.call(*READS_ROWS)
    if not reads:
        return
    parts = _sharded_by_s3(case)
    whole = [name for name in case.channels if name not in parts and name != "code"]
    by_hand = [use for use in code.calls(".shard") if not use.name.startswith("sagemaker_tf_data.")]
    own = code.has(*OUR_SHARDS)
    if not by_hand and not own and not code.has(*SHARDS) and not _cut_by_rank(case) and (whole or not parts):
        if _shuffles(code):
            yield finding("no-shards", reads.place, severity=Severity.NOTE)
        else:
            yield finding("no-shards/same-order", reads.place)
    for use in by_hand:
        number = use.argument("index", 1)
        if parts and not whole and not own and number and use.source.last(number) == "rank":
            channels = ", ".join(parts)
            yield finding("shards-twice", use.place, channels=channels, written=use.written, processes=case.processes)


def _shuffles(code: UserProgram) -> bool:
    """Return whether each rank reads in its own order. Keras shuffles arrays and folders unless `shuffle=False`."""
    if code.has(".shuffle", ".permutation", ".shuffle_batch") or code.mentions(r"shuffle\s*=\s*True"):
        return True
    by_keras = code.has(".flow_from_directory", ".flow", ".image_dataset_from_directory") or (
        code.call(".fit") is not None and not code.has("tensorflow.data.*")
    )
    return by_keras and not code.mentions(r"shuffle\s*=\s*False")


def _cut_by_rank(case: Case) -> bool:
    """Return whether a script selects files or rows by rank: `paths[rank::size]`, `i % size == rank`, `f(x, rank)`."""
    for source, node in case.code.nodes(ast.AST):
        given: list[ast.expr] = []
        match node:
            case ast.Subscript(value=value, slice=key) if _RANK.search(ast.unparse(key)):
                if not re.search("gpu|device", ast.unparse(value), re.IGNORECASE):
                    return True
            case ast.Compare() if _RANK.search(ast.unparse(node)):
                if any(isinstance(each, ast.Mod) for each in ast.walk(node)):
                    return True
            case ast.BinOp(op=ast.Mult()):  # `rank * rows`: a rank's first row
                given = [node.left, node.right]
            case ast.Call() if source.last(node) not in _NO_READERS:
                given = [*node.args, *(word.value for word in node.keywords)]
        if any(source.last(each) == "rank" for each in given):
            return True
    return False


def _of_steps(case: Case) -> Iterator[Finding]:
    code = case.code
    if code.has(*EVENS_STEPS) or code.mentions("steps_per_epoch|drop_remainder|max_steps|last_step|num_steps"):
        return
    learns = code.call(".fit", ".DistributedGradientTape")
    if learns is None:
        return
    # A script that neither names a channel's folder nor is given one may load MNIST, or make its data.
    reads_channels = code.mentions("SM_CHANNEL|SM_INPUT|/opt/ml/input|sagemaker_tf_data") or case.gives("/opt/ml/input")
    parts = _sharded_by_s3(case) if reads_channels else []
    why = "where rows do not divide evenly"
    if parts:
        why = f"channel {', '.join(parts)} gives hosts different numbers of rows"
    yield finding("uneven-ranks", learns.place, severity=Severity.WARNING if parts else Severity.NOTE, why=why)


def _scales(code: UserProgram) -> bool:
    """Return whether the script computes with `size()`: in arithmetic, an assignment, or an argument of a call."""
    for use in code.calls("size", ".size"):
        for outer in use.source.around(use.node):
            if isinstance(outer, ast.BinOp | ast.Assign | ast.keyword):
                return True
            if isinstance(outer, ast.Call) and use.source.last(outer) not in ("print", "shard"):
                return True
            if isinstance(outer, ast.stmt):
                break
    return False


def _of_batches(case: Case) -> Iterator[Finding]:
    code = case.code
    if not (case.together(Mode.MWMS) and code.has(".MultiWorkerMirroredStrategy")):
        return
    if code.mentions(
        r"num_replicas_in_sync|get_per_replica_batch_size|num_workers|num_input_pipelines|\bworkers\b|world_size"
    ):
        return
    batch = code.call(".batch")
    if batch is not None:
        share = f"each of {case.processes} workers" if case.processes else "each worker"
        yield finding("batch-size", batch.place, batch=batch.written[-40:], share=share)


def _of_attributes(case: Case) -> Iterator[Finding]:
    """Yield reads of a manifest with wrong or missing `attributes=`. Each attribute of a line is a record."""
    attributes = _attributes(case)
    for use in case.code.calls(*_PIPES):
        assert isinstance(use.node, ast.Call)
        channel = use.source.constant(use.argument("channel", 0))
        read = [channel] if channel else list(attributes)  # an unknown channel may be any in Pipe mode
        wanted = [attributes.get(name, []) for name in read]
        star = any(word.arg is None for word in use.node.keywords)
        if not wanted or star or min(map(len, wanted)) < 2 or any(names != wanted[0] for names in wanted):
            continue
        names = wanted[0]
        given, shown = use.argument("attributes"), ", ".join(names)
        items = given.elts if isinstance(given, ast.List | ast.Tuple) else []
        if not items and (given is None or isinstance(given, ast.List | ast.Tuple)):
            record_format = use.source.constant(use.argument("record_format", 1))
            if record_format in ("RecordIO", None) and not _gathered(case, use, len(names)):
                channels = ", ".join(map(str, read))
                yield finding("attributes-missing", use.place, channels=channels, names=shown, wanted=repr(names))
        elif (others := texts_of(items)) and len(others) == len(items) and others != names:
            named = ", ".join(others)
            yield finding("attributes-missing/other-names", use.place, given=named, names=shown, wanted=repr(names))


def _attributes(case: Case) -> dict[str, list[str]]:
    """Return the AttributeNames of each channel in Pipe mode."""
    found: dict[str, list[str]] = {}
    for name, each in case.request.channels.items():
        if (case.channels.get(name) or {}).get("TrainingInputMode") == "Pipe":
            found[name] = [str(attribute) for attribute in s3_source(each).get("AttributeNames") or []]
    return found


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


def _first_step(source: SourceFile, node: ast.AST, number: int) -> bool | None:
    """Return whether a dataset's first transformation makes batches of `number` records.

    Return False if it makes other batches, shards or shuffles; None if the dataset cannot be followed through the code.
    """
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
