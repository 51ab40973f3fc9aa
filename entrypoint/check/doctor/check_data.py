"""Check which data each process of a job reads, how many steps it takes, and its batch size and learning rate."""

import ast
from collections.abc import Iterator

from entrypoint.check.doctor.check_attributes import of_attributes
from entrypoint.check.doctor.source import Code, Source, Use, UseKind
from entrypoint.check.doctor.subject import HOROVOD, Case
from entrypoint.check.finding import Finding, note, warning
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


def of_data(case: Case) -> Iterator[Finding]:
    """Yield data that all ranks or none read, and steps, rates, batches and threads that do not fit the job."""
    if case.together(Mode.MPI) and case.code.has(*HOROVOD, kind=UseKind.IMPORT):
        yield from _of_shards(case)
        yield from _of_steps(case)
        yield from _of_learning_rate(case)
    yield from _of_batches(case)
    yield from _of_threads(case)
    yield from of_attributes(case)


def _sharded_by_s3(case: Case) -> list[str]:
    """Return the channels of which SageMaker gives each host a different part."""
    return [
        name
        for name, channel in (case.job.input_data_config if case.job else {}).items()
        if channel.get("S3DistributionType") == "ShardedByS3Key"
    ]


def _of_shards(case: Case) -> Iterator[Finding]:
    code = case.code
    reads = code.first(*_READS, kind=UseKind.CALL)
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
                "every rank reads all of the data, each in an order of its own: an epoch of the "
                "job is as many passes as there are ranks",
                'rows = shard(rows, "training") of sagemaker_tf_data, or rows.shard(hvd.size(), hvd.rank()), first',
                place=reads.place,
            )
        else:
            yield warning(
                "no-shards",
                "every rank reads the same data in the same order: all compute the same gradient, "
                "so more hosts do not make it faster",
                'rows = shard(rows, "training") of sagemaker_tf_data, or rows.shard(hvd.size(), hvd.rank())',
                place=reads.place,
            )
    for use in by_hand:
        if parts and not whole and not own and _is_by_rank_of_all(use):
            yield warning(
                "shards-twice",
                f"SageMaker gives each host a part of channel {', '.join(parts)}, and {use.written} keeps 1 of "
                f"{case.processes} of that: the rest is never read",
                'shard(rows, "training") of sagemaker_tf_data, which handles that; or rows.shard(hvd.local_size(), '
                "hvd.local_rank())",
                place=use.place,
            )


def _shuffles(code: Code) -> bool:
    """Return whether each rank reads in its own order. Keras shuffles arrays and folders unless `shuffle=False`."""
    if code.has(".shuffle", ".permutation", ".shuffle_batch") or code.mentions(r"shuffle\s*=\s*True"):
        return True
    by_keras = code.has(".flow_from_directory", ".flow", ".image_dataset_from_directory") or (
        code.has(".fit", kind=UseKind.CALL) and not code.has("tensorflow.data.*")
    )
    return by_keras and not code.mentions(r"shuffle\s*=\s*False")


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
    if code.has(*_EVEN) or code.mentions("steps_per_epoch|drop_remainder|max_steps|last_step|num_steps"):
        return
    learns = code.first(".fit", ".DistributedGradientTape", kind=UseKind.CALL)
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
        f"nothing makes ranks take the same number of steps: {why}, and a rank with one more waits forever for the "
        "others",
        "batches = end_together(batches) of sagemaker_tf_data, as the last step; or steps_per_epoch=, dataset.take()",
        place=learns.place,
    )


def _of_learning_rate(case: Case) -> Iterator[Finding]:
    code = case.code
    wrapped = code.first(".DistributedOptimizer", ".DistributedGradientTape", kind=UseKind.CALL)
    if wrapped is None or any(_scales(source) for source in code.sources):
        return
    yield note(
        "learning-rate",
        "the learning rate does not depend on the number of ranks, while a step has as many times the rows",
        "learning_rate * hvd.size(), with a warm-up; or its square root for Adam",
        place=wrapped.place,
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
    if code.mentions(
        r"num_replicas_in_sync|get_per_replica_batch_size|num_workers|num_input_pipelines|\bworkers\b|world_size"
    ):
        return
    batch = code.first(".batch", kind=UseKind.CALL)
    if batch is not None:
        share = f"each of {case.processes} workers" if case.processes else "each worker"
        yield note(
            "batch-size",
            f"{batch.written[-40:]} is the batch of all replicas together: {share} gets its part "
            "of these rows, so that more hosts have less to do in each step",
            "batch(batch_size * strategy.num_replicas_in_sync), and a learning rate to match",
            place=batch.place,
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
                    f"{use.written} overrides the launcher's numbers, which divide a host's CPUs among its processes",
                    "nothing, or 0",
                    place=use.place,
                )
