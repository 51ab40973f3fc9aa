"""Check which data each process of a job reads, how many steps it takes, and its batch size and learning rate."""

import ast
from collections.abc import Iterator

from entrypoint.check.finding import Finding, note, warning
from entrypoint.check.lint.source import Code, Source, Use, matches
from entrypoint.check.lint.subject import HOROVOD, Case
from entrypoint.launcher.job.job import Mode

_READS = (
    ".TFRecordDataset",
    ".TextLineDataset",
    ".FixedLengthRecordDataset",
    ".CsvDataset",
    ".make_csv_dataset",
    ".list_files",
    ".from_generator",
    ".PipeModeDataset",
    ".image_dataset_from_directory",
    ".text_dataset_from_directory",
    ".flow_from_directory",
    ".load_data",
    ".read_csv",
    "numpy.load",
)  # datasets made in memory are left out: a rank may generate its own
_SHARDS = (
    ".shard",
    ".num_shards",
    "sagemaker_tf_data.shard",
    "sagemaker_tf_data.part",
    "sagemaker_tf_data.sharding*",
    "sagemaker_tf_data.pipe_dataset",
    ".num_input_pipelines",
    ".send_to_data_service",
    ".experimental_distribute_dataset",
    ".distribute_datasets_from_function",
    ".Partition",
)
_EVEN = (".take", ".repeat", ".end_together", ".even_steps", "horovod.*.join", ".drop_remainder", ".JoinOp")
_RANKS = ("rank", "size")
# Calls that may take a rank as argument without reading data by it.
_NO_READERS = ("print", "str", "int", "format", "info", "debug", "warning", "log", "broadcast", "broadcast_object")
_OWN_SHARD = "sagemaker_tf_data."
_PIPES = ("sagemaker_tf_data.pipe_dataset", "sagemaker_tf_data.pipe.pipe_dataset")
_OWN_SHARDS = ("sagemaker_tf_data.shard", "sagemaker_tf_data.sharding.shard")
_GATHERS = ("batch", "padded_batch", "ragged_batch", "window")  # may join an example's records in the script itself


def of_data(case: Case) -> Iterator[Finding]:
    """Yield data that all ranks or none read, and steps, rates, batches and threads that do not fit the job."""
    if case.together(Mode.MPI) and case.code.has(*HOROVOD, kind="import"):
        yield from _of_shards(case)
        yield from _of_steps(case)
        yield from _of_learning_rate(case)
    yield from _of_batches(case)
    yield from _of_threads(case)
    yield from _of_attributes(case)


def _sharded_by_s3(case: Case) -> list[str]:
    """Return the channels of which SageMaker gives each host a different part."""
    return [
        name
        for name, channel in (case.job.input_data_config if case.job else {}).items()
        if channel.get("S3DistributionType") == "ShardedByS3Key"
    ]


def _of_shards(case: Case) -> Iterator[Finding]:
    code = case.code
    reads = code.first(*_READS, kind="call")
    if not reads:
        return
    parts = _sharded_by_s3(case)
    whole = [name for name in case.channels if name not in parts and name != "code"]
    by_hand = [use for use in code.calls(".shard") if not use.name.startswith(_OWN_SHARD)]
    own = code.has("sagemaker_tf_data.shard", "sagemaker_tf_data.part")
    if not by_hand and not own and not code.has(*_SHARDS) and not _cut_by_rank(case) and (whole or not parts):
        if _shuffles(code):
            yield note(
                "no-shards",
                reads.place,
                "every rank reads all of the data, each in an order of its own: an epoch of the "
                "job is as many passes as there are ranks",
                'rows = shard(rows, "training") of sagemaker_tf_data, or rows.shard(hvd.size(), hvd.rank()), first',
            )
        else:
            yield warning(
                "no-shards",
                reads.place,
                "every rank reads the same data in the same order: all compute the same gradient, "
                "so more hosts do not make it faster",
                'rows = shard(rows, "training") of sagemaker_tf_data, or rows.shard(hvd.size(), hvd.rank())',
            )
    for use in by_hand:
        if parts and not whole and not own and _is_by_rank_of_all(use):
            yield warning(
                "shards-twice",
                use.place,
                f"SageMaker gives each host a part of channel {', '.join(parts)}, and {use.written} keeps 1 of "
                f"{case.processes} of that: the rest is never read",
                'shard(rows, "training") of sagemaker_tf_data, which handles that; or rows.shard(hvd.local_size(), '
                "hvd.local_rank())",
            )


def _shuffles(code: Code) -> bool:
    """Return whether each rank reads in its own order. Keras shuffles arrays and folders unless `shuffle=False`."""
    if code.has(".shuffle", ".permutation", ".shuffle_batch") or code.says(r"shuffle\s*=\s*True"):
        return True
    by_keras = code.has(".flow_from_directory", ".flow", ".image_dataset_from_directory") or (
        code.has(".fit", kind="call") and not code.has("tensorflow.data.*")
    )
    return by_keras and not code.says(r"shuffle\s*=\s*False")


def _is_by_rank_of_all(use: Use) -> bool:
    number = use.argument("index", 1)
    return number is not None and use.source.dotted(getattr(number, "func", number)).rpartition(".")[2] == "rank"


def _cut_by_rank(case: Case) -> bool:
    """Return whether a script selects files or rows by rank: `paths[rank::size]`, `i % size == rank`, `f(x, rank)`."""
    for source in case.code.sources:
        for node in ast.walk(source.tree):
            given: tuple[ast.AST, ...] = ()
            if isinstance(node, ast.Subscript) and _names_rank(source, node.slice):
                value = source.dotted(node.value) if isinstance(node.value, ast.Name | ast.Attribute) else ""
                if "gpu" not in value.lower() and "device" not in value.lower():
                    return True
            elif isinstance(node, ast.Compare):
                counts = any(isinstance(each, ast.BinOp) and isinstance(each.op, ast.Mod) for each in ast.walk(node))
                if counts and _names_rank(source, node):
                    return True
            elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):  # `rank * rows`: a rank's first row
                given += (node.left, node.right)
            elif isinstance(node, ast.Call) and source.dotted(node.func).rpartition(".")[2] not in _NO_READERS:
                given += (*node.args, *(word.value for word in node.keywords))
            if any(_is_rank(source, each) for each in given):
                return True
    return False


def _is_rank(source: Source, node: ast.AST) -> bool:
    return source.dotted(node.func if isinstance(node, ast.Call) else node).rpartition(".")[2] == "rank"


def _names_rank(source: Source, node: ast.AST) -> bool:
    return any(
        source.dotted(each).rpartition(".")[2] in _RANKS
        for each in ast.walk(node)
        if isinstance(each, ast.Name | ast.Attribute)
    )


def _of_steps(case: Case) -> Iterator[Finding]:
    code = case.code
    if code.has(*_EVEN) or code.says("steps_per_epoch|drop_remainder|max_steps|last_step|num_steps"):
        return
    learns = code.first(".fit", ".DistributedGradientTape", kind="call")
    if learns is None:
        return
    parts = _sharded_by_s3(case)
    make = warning if parts else note
    why = (
        f"channel {', '.join(parts)} gives hosts different numbers of rows"
        if parts
        else "where rows do not divide evenly"
    )
    yield make(
        "uneven-ranks",
        learns.place,
        f"nothing makes ranks take the same number of steps: {why}, and a rank with one more waits forever for the "
        "others",
        "batches = end_together(batches) of sagemaker_tf_data, as the last step; or steps_per_epoch=, dataset.take()",
    )


def _of_learning_rate(case: Case) -> Iterator[Finding]:
    code = case.code
    wrapped = code.first(".DistributedOptimizer", ".DistributedGradientTape", kind="call")
    if wrapped is None or any(_scales(source) for source in code.sources):
        return
    yield note(
        "learning-rate",
        wrapped.place,
        "the learning rate does not depend on the number of ranks, while a step has as many times the rows",
        "learning_rate * hvd.size(), with a warm-up; or its square root for Adam",
    )


def _scales(source: Source) -> bool:
    """Return whether the script computes with `size()`: in arithmetic, an assignment, or an argument of a call."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and source.dotted(node.func).rpartition(".")[2] == "size":
            for outer in source.around(node):
                if isinstance(outer, ast.BinOp | ast.Assign | ast.keyword):
                    return True
                if isinstance(outer, ast.Call) and source.dotted(outer.func).rpartition(".")[2] not in (
                    "print",
                    "shard",
                ):
                    return True
                if isinstance(outer, ast.stmt):
                    break
    return False


def _of_batches(case: Case) -> Iterator[Finding]:
    code = case.code
    if not (case.together(Mode.MWMS) and code.has(".MultiWorkerMirroredStrategy")):
        return
    if code.says(
        r"num_replicas_in_sync|get_per_replica_batch_size|num_workers|num_input_pipelines|\bworkers\b|world_size"
    ):
        return
    batch = code.first(".batch", kind="call")
    if batch is not None:
        share = f"each of {case.processes} workers" if case.processes else "each worker"
        yield note(
            "batch-size",
            batch.place,
            f"{batch.written[-40:]} is the batch of all replicas together: {share} gets its part "
            "of these rows, so that more hosts have less to do in each step",
            "batch(batch_size * strategy.num_replicas_in_sync), and a learning rate to match",
        )


def _of_threads(case: Case) -> Iterator[Finding]:
    code = case.code
    names = (".set_intra_op_parallelism_threads", ".set_inter_op_parallelism_threads")
    for use in code.calls(*names, ".ConfigProto"):
        given = [word for word in use.node.keywords if "parallelism_threads" in (word.arg or "")]  # type: ignore[attr-defined]
        if use.name.endswith(names) or given:
            value = given[0].value if given else use.argument("num_threads", 0)
            if not (isinstance(value, ast.Constant) and value.value == 0):
                yield note(
                    "threads",
                    use.place,
                    f"{use.written} overrides the launcher's numbers, which divide a host's CPUs among its processes",
                    "nothing, or 0",
                )


def _of_attributes(case: Case) -> Iterator[Finding]:
    """Yield reads of a manifest with several attributes, each its own record, with missing or wrong `attributes=`."""
    attributes = _attributes(case)
    for use in case.code.calls(*_PIPES):
        assert isinstance(use.node, ast.Call)
        named = use.argument("channel", 0)
        channel = None if isinstance(named, ast.Constant) and named.value is None else _text(use.source, named)
        read = [channel] if channel else list(attributes)  # an unknown channel may be any in Pipe mode
        wanted = [attributes.get(name, []) for name in read]
        star = any(word.arg is None for word in use.node.keywords)
        if not wanted or star or min(map(len, wanted)) < 2 or any(names != wanted[0] for names in wanted):
            continue
        names, shown = wanted[0], ", ".join(wanted[0])
        given, put = use.argument("attributes"), f"attributes=[{', '.join(map(repr, wanted[0]))}]"
        if given is None or (isinstance(given, ast.List | ast.Tuple) and not given.elts):
            if _text(use.source, use.argument("record_format", 1)) in ("RecordIO", "") and not _gathered(
                case, use, len(names)
            ):
                yield warning(
                    "attributes-missing",
                    use.place,
                    f"channel {', '.join(map(str, read))} has AttributeNames {shown}: each is a record of its own, and "
                    "without attributes= the records of an example are shuffled and dealt out apart",
                    put,
                )
        elif (said := _texts(given)) and said != names:
            yield warning(
                "attributes-missing",
                use.place,
                f"it names the attributes {', '.join(said)}, and the job has AttributeNames {shown}: "
                "records get the wrong names",
                put,
            )


def _attributes(case: Case) -> dict[str, list[str]]:
    """Return the AttributeNames of each channel in Pipe mode."""
    found: dict[str, list[str]] = {}
    modes = case.job.input_data_config if case.job else {}
    for each in case.described.request.channels if case.described else ():
        name = str(each.get("ChannelName"))
        source = (each.get("DataSource") or {}).get("S3DataSource") or {}
        if (modes.get(name) or {}).get("TrainingInputMode") == "Pipe":
            found[name] = [str(attribute) for attribute in source.get("AttributeNames") or []]
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
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _texts(node: ast.AST) -> list[str]:
    """Return the strings of a literal list; [] if one of them is computed."""
    each = node.elts if isinstance(node, ast.List | ast.Tuple) else []
    found = [item.value for item in each if isinstance(item, ast.Constant) and isinstance(item.value, str)]
    return found if len(found) == len(each) else []


def _gathered(case: Case, use: Use, number: int) -> bool:
    """Return whether a script keeps each example's records together itself.

    It does if its first step makes batches of `number` records. If the dataset cannot be followed through the code, any
    such batch in the program counts. Without a shuffle, a shard, several processes and batches, records stay in order.
    """
    apart = case.code.has(".shuffle", ".shard", kind="call") or case.processes > 1
    in_batches = case.code.has(*(f".{name}" for name in _GATHERS), kind="call")
    if not apart and not in_batches:
        return True
    first = _first_step(use.source, use.node, number)
    if first is None:
        first = any(_has_number(each.node, number) for each in case.code.calls(*(f".{name}" for name in _GATHERS)))
    return first


def _first_step(source: Source, node: ast.AST, number: int) -> bool | None:
    """Return True if the first step joins records, False if it separates them; None if it cannot be followed."""
    outer = source.parents.get(node)
    while isinstance(outer, ast.Attribute):
        call = source.parents.get(outer)
        if not isinstance(call, ast.Call) or call.func is not outer:
            return None
        if outer.attr in _GATHERS:
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
    inside = (each for node in given for each in ast.walk(node))
    return any(isinstance(each, ast.Constant) and each.value == number for each in inside)
