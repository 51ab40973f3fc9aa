"""Check which data each process of a job reads, how many steps it takes, and its batch size and learning rate."""

import ast
import itertools
import re
from collections.abc import Iterator

from entrypoint.base.severity import Severity
from entrypoint.check.doctor.rulebook import finding
from entrypoint.check.doctor.subject import Case
from entrypoint.check.finding import Finding
from entrypoint.launcher.job.job import Mode
from entrypoint.usercode.api_names import EVENS_STEPS, HOROVOD, LOGS, OUR_SHARDS, READS_ROWS, SHARDS
from entrypoint.usercode.datasets import (
    OURS,
    OWN_SHARDS,
    Followed,
    stands_for,
    steps_of,
)
from entrypoint.usercode.name_scopes import is_spread
from entrypoint.usercode.reader import UserProgram
from entrypoint.usercode.source import SourceFile, Use, UseKind, given_to, matches, value_of

_RANK = re.compile(r"\b(rank|size)\b")
# Calls that may take a rank as argument without reading data by it.
_NO_READERS = (*LOGS, "str", "int", "format", "broadcast", "broadcast_object")
_RANKS = ("rank", "task_id", "task_index", "process_index", "process_id", "worker_index")
_OFF = {
    "MultiWorkerMirroredStrategy": "options.experimental_distribute.auto_shard_policy = AutoShardPolicy.OFF",
    "DataParallel": "keras.distribution.DataParallel(auto_shard_dataset=False)",
}
# Arithmetic that divides rows, steps or epochs by the number of processes.
_BY_SIZE = r"[/%][-\w.() +*]*\b(size|world\w*|\w*ranks|num_\w+|n_\w+|process_count)\b"
_AHEAD = ("prefetch", "shuffle")  # steps that request elements before they are asked for
_RESTS = {"take", "skip", "repeat", "filter", "shard", "interleave", "flat_map", "take_while"}
_SHUFFLES = ("random.shuffle", "numpy.random.shuffle")


def of_data(case: Case) -> Iterator[Finding]:
    """Yield data that all ranks or none read, and steps, rates and batches that do not fit the job."""
    if case.together(Mode.MPI) and case.code.imports(*HOROVOD):
        yield from _of_shards(case)
        yield from _of_steps(case)
        wrapped = case.code.call(".DistributedOptimizer", ".DistributedGradientTape")
        if wrapped and not _scales(case.code):
            yield finding("learning-rate", wrapped.place)
    yield from _of_batches(case)
    if case.together(Mode.JAX):
        yield from _of_steps(case)
    if case.several:
        yield from _of_shard_numbers(case)
        yield from _of_shard_orders(case)
        for data in case.pipelines:
            yield from _of_second_shards(case, data)
            yield from _of_last_steps(case, data)
    if case.tensorflow < (2, 16):
        yield from _of_run_out(case)


def _sharded_by_s3(case: Case) -> list[str]:
    """Return the channels with ShardedByS3Key: each host gets a different part of these."""
    return [name for name, each in case.channels.items() if each.get("S3DistributionType") == "ShardedByS3Key"]


def _whole(case: Case) -> list[str]:
    """Return the channels of which each host has all."""
    return [name for name in case.channels if name not in ("code", *_sharded_by_s3(case))]


def _of_shards(case: Case) -> Iterator[Finding]:
    code = case.code
    reads = code.call(*READS_ROWS)
    if not reads:
        return
    parts = _sharded_by_s3(case)
    whole = _whole(case)
    by_hand = [use for use in code.calls(".shard") if not use.name.startswith("sagemaker_tf_data.")]
    own = code.has(*OUR_SHARDS)
    if not by_hand and not own and not code.has(*SHARDS) and not _cut_by_rank(case) and (whole or not parts):
        if data := next((each for each in case.pipelines if _takes_all(code, each)), None):
            yield finding("no-shards/each-all", data.steps[0].place)
        elif _shuffles(code):
            yield finding("no-shards", reads.place, severity=Severity.NOTE)
        else:
            yield finding("no-shards/same-order", reads.place)
    for use in by_hand:
        number = use.argument("index", 1)
        if parts and not whole and not own and number and use.source.last(number) == "rank":
            names, count, text = ", ".join(parts), case.processes, use.written
            yield finding("shards-twice", use.place, channels=names, channel=parts[0], written=text, processes=count)


def _takes_all(code: UserProgram, data: Followed) -> bool:
    """Return whether each rank trains on all records of files, and does nothing by the number of ranks about it."""
    shared = _breaks(data) or data.use.argument("steps_per_epoch") is not None
    own = [each for each in data.steps if _shuffles_anew(each)]  # a seed by rank is no oversight
    return bool(data.reads_files and own) and not (shared or code.mentions(_BY_SIZE) or _RESTS & {*data.names})


def _breaks(data: Followed) -> bool:
    return any(isinstance(each, ast.Break | ast.Return) for each in ast.walk(data.use.node))


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
                given = given_to(node)
        if any(source.last(each) == "rank" for each in given):
            return True
    return False


def _of_steps(case: Case) -> Iterator[Finding]:
    code = case.code
    dropped = "" if case.together(Mode.JAX) else "|drop_remainder"  # of JAX, all must drop it
    if code.has(*EVENS_STEPS) or code.mentions(f"steps_per_epoch|max_steps|last_step|num_steps{dropped}"):
        return
    divided = (each for each in case.pipelines if _own_part(each) and not _breaks(each) and not code.mentions(_BY_SIZE))
    if uneven := next(divided, None):
        why = "their shards may differ by a row, and so by a batch"
        yield finding("uneven-ranks", uneven.use.place, severity=Severity.WARNING, why=why)
        return
    if case.together(Mode.JAX):
        return
    learns = code.call(".fit", ".DistributedGradientTape")
    if learns is None:
        return
    # A script that neither names a channel's folder nor is given one may load MNIST, or make its data.
    reads_channels = code.mentions("SM_CHANNEL|SM_INPUT|/opt/ml/input|sagemaker_tf_data") or case.gives("/opt/ml/input")
    parts = _sharded_by_s3(case) if reads_channels else []
    why = "rows may not divide evenly"
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


# --- shards ---


def _words(source: SourceFile, node: ast.AST | None) -> set[str]:
    """Return the last word of an expression, and that of the value which its name has."""
    value = stands_for(source, node) if isinstance(node, ast.Name) else node
    words = {source.last(each) for each in (node, value) if each is not None}
    return words | ({"task_index"} if value and "['task']['index']" in ast.unparse(value) else set())


def _by_rank(use: Use) -> bool:
    """Return whether a step is a `.shard` by the process's number, written by hand."""
    is_shard = use.last == "shard" and not use.name.startswith(OURS)
    return is_shard and not _words(use.source, use.argument("index", 1)).isdisjoint((*_RANKS, "local_rank"))


def _own_part(data: Followed) -> bool:
    return any(_by_rank(each) or matches(each.name, OWN_SHARDS) for each in data.steps)


def drops_remainder(data: Followed) -> bool:
    batch = data.step("batch")
    drops = batch.argument("drop_remainder", 1) if batch else None
    return drops is not None and value_of(drops) is not False


def _slices(code: UserProgram) -> Iterator[tuple[Use, ast.Slice]]:
    for source, node in code.nodes(ast.Subscript):
        if isinstance(node.slice, ast.Slice) and node.slice.lower and node.slice.step:
            yield Use(source, node, "", UseKind.NAME), node.slice


def _of_shard_numbers(case: Case) -> Iterator[Finding]:
    """Yield shards and slices whose number or index is not that of the job's processes."""
    by_hand = (use for use in case.code.calls(".shard") if not use.name.startswith(OURS))
    shards = [(use, use.argument("num_shards", 0), use.argument("index", 1)) for use in by_hand]
    for use, number, index in [*shards, *((use, each.step, each.lower) for use, each in _slices(case.code))]:
        mine, of, fixed = _words(use.source, index), _words(use.source, number), use.source.constant(number)
        if next(use.source.guards(use.node), None) or mine.isdisjoint((*_RANKS, "local_rank")):
            continue
        severity = Severity.ERROR if use.kind is UseKind.CALL else Severity.WARNING
        if "local_rank" in mine:
            if "size" in of and "local_size" not in of and case.hosts > 1:
                yield finding("shard-numbers", use.place, written=use.written)
            continue
        if "num_replicas_in_sync" in of and (case.gpus or 0) > 1:
            fixed = case.processes * (case.gpus or 1)
        if "local_size" in of and case.hosts > 1:
            yield finding("shard-numbers/of-host", use.place, severity=severity, written=use.written)
        elif isinstance(fixed, int) and case.processes > 1 and fixed > 1 and fixed != case.processes:
            key, severity = ("few", severity) if fixed < case.processes else ("many", Severity.WARNING)
            key, text, ranks = f"shard-numbers/too-{key}", use.written, case.processes
            yield finding(key, use.place, severity=severity, written=text, number=fixed, processes=ranks)


def _of_shard_orders(case: Case) -> Iterator[Finding]:
    """Yield what is shuffled by each process in an order of its own, and then sharded."""
    code = case.code
    if code.has(".set_seed", ".set_random_seed", ".seed", ".Random"):
        return
    shuffled = {ast.unparse(use.node.args[0]): use for use in code.calls(*_SHUFFLES) if use.node.args}  # type: ignore[attr-defined]
    cut = [use for use in code.calls(".shard", f"{OURS}*shard") if matches(use.name, OWN_SHARDS) or _by_rank(use)]
    cut += [use for use, each in _slices(code) if not _words(use.source, each.lower).isdisjoint(_RANKS)]
    for use in cut:
        names = {ast.unparse(each) for each in ast.walk(use.node) if isinstance(each, ast.Name)}
        steps = steps_of(use.source, use.node)
        names |= {ast.unparse(each) for step in steps for each in getattr(step.node, "args", ())}
        early = [each for each in steps if _shuffles_anew(each)]
        early += [shuffled[name] for name in names & {*shuffled} if _is_just_before(shuffled[name], use)]
        if early:
            yield finding("shards-overlap", early[0].place, written=f"...{early[0].written[-40:]}")


def _is_just_before(use: Use, other: Use) -> bool:
    same = use.source is other.source and use.source.function_of(use.node) is use.source.function_of(other.node)
    return same and use.place.line < other.place.line


def _shuffles_anew(step: Use) -> bool:
    """Return whether a step gives each process an order of its own. `list_files` does, too, by default."""
    if step.last == "list_files":
        asked = step.argument("shuffle", 1)
        return (asked is None or value_of(asked) is True) and step.argument("seed", 2) is None
    return step.last == "shuffle" and step.argument("seed", 1) is None


def _of_second_shards(case: Case, data: Followed) -> Iterator[Finding]:
    """Yield data that are sharded twice: by the script, our library, the strategy, Keras or SageMaker."""
    code, by_hand = case.code, [each for each in data.steps if _by_rank(each)]
    ours = any(matches(each.name, OWN_SHARDS) for each in data.steps)
    if by_hand and ours:
        yield finding("shards-twice/again", by_hand[-1].place, written=f"...{by_hand[-1].written[-50:]}")
    is_fit, parts = data.use.name.endswith(".fit"), _sharded_by_s3(case)
    by = "MultiWorkerMirroredStrategy" if case.together(Mode.MWMS) and code.has(".MultiWorkerMirroredStrategy") else ""
    if not (is_fit or data.step("experimental_distribute_dataset")):
        by = ""
    by = "DataParallel" if case.together(Mode.JAX) and is_fit and code.call(".DataParallel") else by
    asks = code.mentions("(?i)auto_?shard") or code.has("*distribute_datasets_from_function")
    if not by or ours or asks or data.step("with_options", "DatasetCreator"):
        return
    off = _OFF[by]
    if by_hand:
        if by != "DataParallel":  # check_distribution.py has that
            yield finding("shards-twice/by-strategy", by_hand[-1].place, by=by, off=off)
    elif parts and not _whole(case) and any(matches(each.name, READS_ROWS) for each in data.steps):
        place, names = data.steps[0].place, ", ".join(parts)
        yield finding("shards-twice/of-hosts", place, by=by, off=off, channels=names, channel=parts[0])


# --- steps ---


def _of_last_steps(case: Case, data: Followed) -> Iterator[Finding]:
    """Yield steps behind `end_together` that read ahead, and last batches that differ between JAX's processes."""
    late = [each for each in data.behind("end_together") if _reads_ahead(each)]
    if late and data.reads_files and case.together(Mode.MPI):
        yield finding("end-together", late[0].place, step=f".{late[0].last}")
    if not case.together(Mode.JAX):
        return
    if (end := data.step("end_together")) and data.reads_files:
        yield finding("end-together/unknown", end.place, severity=Severity.ERROR)
    batch = data.step("batch")
    if batch is None or not _own_part(data) or case.code.mentions(_BY_SIZE):
        return
    taken = [each for each in data.behind("batch") if each.last == "take"]
    if not (drops_remainder(data) or taken or data.use.argument("steps_per_epoch") or data.step("repeat")):
        size = ast.unparse(batch.argument("batch_size", 0) or batch.node)
        yield finding("batch-sizes", batch.place, batch=f".batch({size})")


def _reads_ahead(step: Use) -> bool:
    return step.last in _AHEAD or step.argument("num_parallel_calls") is not None


def _of_run_out(case: Case) -> Iterator[Finding]:
    """Yield data that end before `fit` of Keras 2 does, and data with an end behind endless ones."""
    fits = [each for each in case.pipelines if each.use.name.endswith(".fit")]
    for data in fits:
        steps, epochs = data.use.argument("steps_per_epoch"), data.use.argument("epochs", 3)
        yield from _of_no_steps(
            data, Followed(data.use, steps_of(data.use.source, data.use.argument("validation_data")))
        )
        if steps is None or ast.unparse(steps) == "None" or data.use.argument("initial_epoch"):
            continue
        if data.step("repeat", "take"):
            continue
        if case.together(Mode.PS) and data.step("DatasetCreator"):
            yield finding("data-run-out/servers", data.steps[-2].place)
        elif data.reads_files and epochs is not None and data.use.source.constant(epochs) != 1:
            place, shown = data.use.source.at(steps), ast.unparse(epochs)
            yield finding("data-run-out", place, steps=ast.unparse(steps), epochs=shown)
    if not (case.together(Mode.MWMS) and case.code.has(".MultiWorkerMirroredStrategy")):
        return
    for first, second in itertools.pairwise(fits):
        if first.is_endless and second.reads_files and not second.step("repeat") and _goes_on(first.use, second.use):
            yield finding("endless-first", second.use.place, first=first.use.place.line)


def _of_no_steps(*given: Followed) -> Iterator[Finding]:
    """Yield data without an end that `fit` gets for training, then for validation, without a number of steps."""
    for data, wanted in zip(given, ("steps_per_epoch", "validation_steps"), strict=True):
        repeat, steps = data.step("repeat"), data.use.argument(wanted)
        counted = (steps is not None and ast.unparse(steps) != "None") or is_spread(data.use.call)
        if repeat and data.is_endless and not (counted or data.step("take_while", "end_together")):
            yield finding("endless-no-steps", repeat.place, wanted=wanted, line=data.use.place.line)


def _goes_on(first: Use, second: Use) -> bool:
    """Return whether a call of `fit` follows another of the same model, which is not compiled or made in between."""
    model, other = (ast.unparse(each.of) if each.of else "" for each in (first, second))
    source, lines = first.source, range(first.place.line, second.place.line + 1)
    if not model or source is not second.source or other != model:
        return False
    if source.function_of(first.node) is not source.function_of(second.node):
        return False
    guarded = [*source.guards(first.node), *source.guards(second.node)]
    compiled = [use for use in source.uses if use.name.endswith(".compile") and use.place.line in lines]
    made = [each for each in source.assignments.get(model, ()) if each.node.lineno in lines]  # type: ignore[attr-defined]
    return not (guarded or compiled or made)


# --- batches ---


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
