"""Check which data each process of a job reads, how many steps it takes, and its batch size and learning rate."""

import ast
import re
from collections.abc import Iterator

from entrypoint.check.doctor.api_names import EVENS_STEPS, HOROVOD, LOGS, OUR_SHARDS, READS_ROWS, SHARDS
from entrypoint.check.doctor.check_attributes import of_attributes
from entrypoint.check.doctor.program import Code
from entrypoint.check.doctor.subject import Case
from entrypoint.check.finding import Finding, note, warning
from entrypoint.launcher.job.job import Mode

_RANK = re.compile(r"\b(rank|size)\b")
# Calls that may take a rank as argument without reading data by it.
_NO_READERS = (*LOGS, "str", "int", "format", "broadcast", "broadcast_object")


def of_data(case: Case) -> Iterator[Finding]:
    """Yield data that all ranks or none read, and steps, rates and batches that do not fit the job."""
    if case.together(Mode.MPI) and case.code.imports(*HOROVOD):
        yield from _of_shards(case)
        yield from _of_steps(case)
        yield from _of_learning_rate(case)
    yield from _of_batches(case)
    yield from of_attributes(case)


def _sharded_by_s3(case: Case) -> list[str]:
    """Return the channels of which SageMaker gives each host a different part."""
    return [name for name, each in case.channels.items() if each.get("S3DistributionType") == "ShardedByS3Key"]


def _reads_channels(case: Case) -> bool:
    """Return whether a script names a channel's folder, or is given one; it may load MNIST, or make its data."""
    by_name = case.code.mentions("SM_CHANNEL|SM_INPUT|/opt/ml/input|sagemaker_tf_data")
    return by_name or case.gives("/opt/ml/input")


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
        instead = 'rows = shard(rows, "training") of sagemaker_tf_data, or rows.shard(hvd.size(), hvd.rank())'
        if _shuffles(code):
            yield note(
                "no-shards",
                "every rank reads all of the data, each in an order of its own: an epoch of the job is as many passes "
                "as there are ranks",
                f"{instead}, first",
                place=reads.place,
            )
        else:
            yield warning(
                "no-shards",
                "every rank reads the same data in the same order: all compute the same gradient, so more hosts do "
                "not make it faster",
                instead,
                place=reads.place,
            )
    for use in by_hand:
        number = use.argument("index", 1)
        if parts and not whole and not own and number and use.source.last(number) == "rank":
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
    parts = _sharded_by_s3(case) if _reads_channels(case) else []
    why = "where rows do not divide evenly"
    if parts:
        why = f"channel {', '.join(parts)} gives hosts different numbers of rows"
    yield (warning if parts else note)(
        "uneven-ranks",
        f"nothing makes ranks take the same number of steps: {why}, and a rank with one more waits forever for the "
        "others",
        "batches = end_together(batches) of sagemaker_tf_data, as the last step; or steps_per_epoch=, dataset.take()",
        place=learns.place,
    )


def _of_learning_rate(case: Case) -> Iterator[Finding]:
    code = case.code
    wrapped = code.call(".DistributedOptimizer", ".DistributedGradientTape")
    if wrapped is None or _scales(code):
        return
    yield note(
        "learning-rate",
        "the learning rate does not depend on the number of ranks, while a step has as many times the rows",
        "learning_rate * hvd.size(), with a warm-up; or its square root for Adam",
        place=wrapped.place,
    )


def _scales(code: Code) -> bool:
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
        yield note(
            "batch-size",
            f"{batch.written[-40:]} is the batch of all replicas together: {share} gets its part "
            "of these rows, so that more hosts have less to do in each step",
            "batch(batch_size * strategy.num_replicas_in_sync), and a learning rate to match",
            place=batch.place,
        )
