"""Check which data each process of a job reads, how many steps it takes, and its batch size and learning rate."""

import ast
import itertools
import re
from collections.abc import Iterator

from entrypoint.base.severity import Severity
from entrypoint.check.doctor.planned_job import s3_source
from entrypoint.check.doctor.rulebook import finding
from entrypoint.check.doctor.subject import Case
from entrypoint.check.finding import Finding
from entrypoint.launcher.job.channels import sources
from entrypoint.launcher.job.job import Mode
from entrypoint.usercode.api_names import EVENS_STEPS, HOROVOD, LOGS, OUR_SHARDS, READS_ROWS, SHARDS, WORKERS
from entrypoint.usercode.datasets import (
    OURS,
    PIPES,
    Followed,
    call_of,
    function_named,
    is_endless,
    last_word,
    stands_for,
    steps_of,
    trained,
)
from entrypoint.usercode.guards import tried
from entrypoint.usercode.name_scopes import is_spread
from entrypoint.usercode.reader import UserProgram
from entrypoint.usercode.source import SourceFile, Use, UseKind, calls_in, given_to, matches, texts_of, value_of

_RANK = re.compile(r"\b(rank|size)\b")
# Calls that may take a rank as argument without reading data by it.
_NO_READERS = (*LOGS, "str", "int", "format", "broadcast", "broadcast_object")
_OWN_SHARDS = ("sagemaker_tf_data.shard", "sagemaker_tf_data.sharding.shard")
_RANKS = ("rank", "task_id", "task_index", "process_index", "process_id", "worker_index")
_OFF = {
    "MultiWorkerMirroredStrategy": "options.experimental_distribute.auto_shard_policy = AutoShardPolicy.OFF",
    "DataParallel": "keras.distribution.DataParallel(auto_shard_dataset=False)",
}
_FORMATS = ("TFRecord", "RecordIO", "TextLine")
_FILES = tuple(f"{OURS}{name}" for name in ("files", "file_names", "even_steps", "sharding.files"))
_LISTS = ("glob.glob", "glob.iglob", "os.listdir", "os.walk", "os.scandir", ".gfile.glob", ".rglob", ".iterdir")
_READS_PIPES = (
    r"PipeMode|pipe_dataset|image_records|protobuf_records|(?i:fifo)|_0\b|_\{|_%[ds]|'_'|tf_data\.channels|mlio"
    r"|InputMode|INPUT_MODE|inputdataconfig|INPUT_DATA_CONFIG"
)
# Arithmetic that divides rows, steps or epochs by the number of processes.
_BY_SIZE = r"[/%][-\w.() +*]*\b(size|world\w*|\w*ranks|num_\w+|n_\w+|process_count)\b"
_AHEAD = ("prefetch", "shuffle")  # steps that request elements before they are asked for
_RESTS = {"take", "skip", "repeat", "filter", "shard", "interleave", "flat_map", "take_while"}
_SHUFFLES = ("random.shuffle", "numpy.random.shuffle")
_GATHERS = (".batch", ".padded_batch", ".ragged_batch", ".window")  # may join an example's records in the script itself


def of_data(case: Case) -> Iterator[Finding]:
    """Yield data that all ranks or none read, and steps, rates and batches that do not fit the job."""
    pipelines = list(trained(case.code.sources))
    if case.together(Mode.MPI) and case.code.imports(*HOROVOD):
        yield from _of_shards(case, pipelines)
        yield from _of_steps(case, pipelines)
        wrapped = case.code.call(".DistributedOptimizer", ".DistributedGradientTape")
        if wrapped and not _scales(case.code):
            yield finding("learning-rate", wrapped.place)
    yield from _of_batches(case)
    yield from _of_attributes(case)
    if case.together(Mode.JAX):
        yield from _of_steps(case, pipelines)
    if case.several:
        yield from _of_shard_numbers(case)
        yield from _of_shard_orders(case)
        for data in pipelines:
            yield from _of_second_shards(case, data)
            yield from _of_last_steps(case, data)
    if case.tensorflow < (2, 16):
        yield from _of_run_out(case, pipelines)
    yield from _of_pipes(case)
    for data in pipelines:
        yield from _of_endless_pipes(data)
    if case.together(Mode.MWMS) and case.code.has(".MultiWorkerMirroredStrategy"):
        yield from _of_losses(case, pipelines)
    always = case.code.has(*WORKERS, ".MirroredStrategy") and not case.code.has(".get_strategy")
    if case.tensorflow < (2, 16) and always:
        yield from _of_reductions(case)


def _sharded_by_s3(case: Case) -> list[str]:
    """Return the channels with ShardedByS3Key: each host gets a different part of these."""
    return [name for name, each in case.channels.items() if each.get("S3DistributionType") == "ShardedByS3Key"]


def _whole(case: Case) -> list[str]:
    """Return the channels of which each host has all."""
    return [name for name in case.channels if name not in ("code", *_sharded_by_s3(case))]


def _of_shards(case: Case, pipelines: list[Followed]) -> Iterator[Finding]:
    code = case.code
    reads = code.call(*READS_ROWS)
    if not reads:
        return
    parts = _sharded_by_s3(case)
    whole = _whole(case)
    by_hand = [use for use in code.calls(".shard") if not use.name.startswith("sagemaker_tf_data.")]
    own = code.has(*OUR_SHARDS)
    if not by_hand and not own and not code.has(*SHARDS) and not _cut_by_rank(case) and (whole or not parts):
        if data := next((each for each in pipelines if _takes_all(code, each)), None):
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


def _of_steps(case: Case, pipelines: list[Followed]) -> Iterator[Finding]:
    code = case.code
    dropped = "" if case.together(Mode.JAX) else "|drop_remainder"  # of JAX, all must drop it
    if code.has(*EVENS_STEPS) or code.mentions(f"steps_per_epoch|max_steps|last_step|num_steps{dropped}"):
        return
    divided = (each for each in pipelines if _own_part(each) and not _breaks(each) and not code.mentions(_BY_SIZE))
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
    is_shard = last_word(use) == "shard" and not use.name.startswith(OURS)
    return is_shard and not _words(use.source, use.argument("index", 1)).isdisjoint((*_RANKS, "local_rank"))


def _own_part(data: Followed) -> bool:
    return any(_by_rank(each) or matches(each.name, _OWN_SHARDS) for each in data.steps)


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
    cut = [use for use in code.calls(".shard", f"{OURS}*shard") if matches(use.name, _OWN_SHARDS) or _by_rank(use)]
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
    if last_word(step) == "list_files":
        asked = step.argument("shuffle", 1)
        return (asked is None or value_of(asked) is True) and step.argument("seed", 2) is None
    return last_word(step) == "shuffle" and step.argument("seed", 1) is None


def _of_second_shards(case: Case, data: Followed) -> Iterator[Finding]:
    """Yield data that are sharded twice: by the script, our library, the strategy, Keras or SageMaker."""
    code, by_hand = case.code, [each for each in data.steps if _by_rank(each)]
    ours = any(matches(each.name, _OWN_SHARDS) for each in data.steps)
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
    if by_hand and by != "DataParallel":  # check_modes.py has that
        yield finding("shards-twice/by-strategy", by_hand[-1].place, by=by, off=off)
    elif parts and not _whole(case) and any(matches(each.name, READS_ROWS) for each in data.steps):
        place, names = data.steps[0].place, ", ".join(parts)
        yield finding("shards-twice/of-hosts", place, by=by, off=off, channels=names, channel=parts[0])


# --- steps ---


def _of_last_steps(case: Case, data: Followed) -> Iterator[Finding]:
    """Yield steps behind `end_together` that read ahead, and last batches that differ between JAX's processes."""
    late = [each for each in data.behind("end_together") if _reads_ahead(each)]
    if late and data.reads_files and case.together(Mode.MPI):
        yield finding("end-together", late[0].place, step=f".{last_word(late[0])}")
    if not case.together(Mode.JAX):
        return
    if (end := data.step("end_together")) and data.reads_files:
        yield finding("end-together/unknown", end.place, severity=Severity.ERROR)
    batch = data.step("batch")
    if batch is None or not _own_part(data) or case.code.mentions(_BY_SIZE):
        return
    taken = [each for each in data.behind("batch") if last_word(each) == "take"]
    if not (_drops(data) or taken or data.use.argument("steps_per_epoch") or data.step("repeat")):
        size = ast.unparse(batch.argument("batch_size", 0) or batch.node)
        yield finding("batch-sizes", batch.place, batch=f".batch({size})")


def _reads_ahead(step: Use) -> bool:
    return last_word(step) in _AHEAD or step.argument("num_parallel_calls") is not None


def _of_run_out(case: Case, pipelines: list[Followed]) -> Iterator[Finding]:
    """Yield data that end before `fit` of Keras 2 does, and data with an end behind endless ones."""
    fits = [each for each in pipelines if each.use.name.endswith(".fit")]
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


# --- pipes ---


def _of_pipes(case: Case) -> Iterator[Finding]:
    """Yield reads of a channel that is in the other mode, has records of another format, or has another reader."""
    code = case.code
    for use in code.calls(*PIPES, ".PipeModeDataset"):
        form, name = use.source.constant(use.argument("record_format", 1)), _channel(case, use)
        if isinstance(form, str) and form not in _FORMATS:
            yield finding("pipe-format", use.place, form=repr(form), reader=last_word(use))
        given = case.channels.get(name)
        if given is None or not case.is_sure(use.source, use.node):
            continue
        if given["TrainingInputMode"] != "Pipe":
            yield finding("pipe-mode", use.place, channel=name, reader=last_word(use))
        elif use.argument("attributes") and form in ("TFRecord", "TextLine"):
            yield finding("pipe-format/attributes", use.place, form=form)
        elif given["RecordWrapperType"] == "RecordIO" and form in ("TFRecord", "TextLine"):
            yield finding("pipe-format/wrapped", use.place, channel=name, form=form)
        elif given["RecordWrapperType"] == "None" and form == "RecordIO" and last_word(use) == "pipe_dataset":
            yield finding("pipe-format/not-wrapped", use.place, severity=Severity.WARNING, channel=name)
        elif name in _shared_pipes(case):
            yield finding("pipe-shared", use.place, channel=name)
    for use in code.calls(*_FILES):
        name = _channel(case, use)
        if (case.channels.get(name) or {}).get("TrainingInputMode") == "Pipe" and case.is_sure(use.source, use.node):
            yield finding("pipe-mode/files", use.place, channel=name, written=use.written)
    if not code.mentions(_READS_PIPES):
        for source, node, found in code.strings(r"^SM_CHANNEL_(\w+)$|^/opt/ml/input/data/([\w-]+)"):
            name = next((each for each in case.channels if each.upper() == (found[1] or found[2] or "").upper()), "")
            piped = name and case.channels[name]["TrainingInputMode"] == "Pipe"
            if piped and code.has(*READS_ROWS, *_LISTS) and not tried(source, node):
                yield finding("pipe-mode/files", source.at(node), channel=name, written=found[0])


def _channel(case: Case, use: Use) -> str:
    """Return the name of the channel that a call reads; "" if that is not sure."""
    given, data = use.argument("channel", 0), [name for name in case.channels if name != "code"]
    if value_of(given) is None and (given is None or isinstance(given, ast.Constant)) and len(data) == 1:
        return data[0]
    of_caller = stands_for(use.source, given) if isinstance(given, ast.Name) else None
    return str(use.source.constant(given) or use.source.constant(of_caller) or "")


def _shared_pipes(case: Case) -> set[str]:
    """Return the channels in Pipe mode that several processes of a host would read."""
    plan = case.described.plan
    most = max((spec.reader.most for spec in plan.processes if spec.reader), default=1) if plan else 1
    alone = [each.channels[0] for each in sources(plan.channels, most) if len(each.channels) == 1] if plan else []
    return {each.name for each in alone if most > 1 and each.mode == "Pipe"}


def _of_endless_pipes(data: Followed) -> Iterator[Finding]:
    pipe, repeat = data.step("pipe_dataset"), data.step("repeat")
    behind = [last_word(each) for each in data.behind("repeat")]
    if pipe and repeat and is_endless(repeat) and "prefetch" in behind and "take" not in behind:
        yield finding("pipe-endless", repeat.place)


# --- losses ---


def _of_losses(case: Case, pipelines: list[Followed]) -> Iterator[Finding]:
    """Yield losses whose gradients, summed over the workers, are not those of the mean over the batch of all."""
    spread = [each for each in pipelines if each.step("experimental_distribute_dataset")]
    for source, step in _run_by_strategies(case.code):
        losses = list(_losses(source, step))
        means = [each for each in losses if _is_mean(each)]
        within = {step, *(source.function_of(each.node) for each in losses)}
        text = " ".join(ast.unparse(each) for each in within if each)
        scaled = re.search(r"/|num_replicas|global_batch|compute_average_loss|scale|all_reduce|reciprocal|aggreg", text)
        if means and not scaled and not case.code.mentions(r"(?<!/)/ *\(?[\w.]*(replicas|workers|world)"):
            yield finding("loss-scale", means[0].place, written=means[0].written)
        elif means and scaled and any(not {"repeat", "take"} & {*each.names} and not _drops(each) for each in spread):
            yield finding("empty-mean", means[0].place, written=means[0].written)
        for each in losses:
            batches = {_number(data.step("batch"), "batch_size") for data in spread}
            size = _number(each, "global_batch_size") if last_word(each) == "compute_average_loss" else None
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


def _drops(data: Followed) -> bool:
    batch = data.step("batch")
    drops = batch.argument("drop_remainder", 1) if batch else None
    return drops is not None and value_of(drops) is not False


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


# --- batches, manifests ---


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
    for use in case.code.calls(*PIPES):
        channel = use.source.constant(use.argument("channel", 0))
        read = [channel] if channel else list(attributes)  # an unknown channel may be any in Pipe mode
        wanted = [attributes.get(name, []) for name in read]
        names = wanted[0] if wanted else []
        if is_spread(use.call) or len(names) < 2 or any(each != names for each in wanted):
            continue
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
    given = given_to(call) if isinstance(call, ast.Call) else []
    return any(value_of(each) == number for node in given for each in ast.walk(node))
