"""Provide the library for `model.fit`: a distributed optimizer, and the callback that broadcasts variables."""

from smdistributed.dataparallel import not_covered
from smdistributed.dataparallel.tensorflow import (
    Compression,
    DistributedOptimizer,
    ReduceOp,
    broadcast,
    broadcast_global_variables,
    broadcast_variables,
    init,
    local_rank,
    local_size,
    oob_allreduce,
    rank,
    shutdown,
    size,
)
from smdistributed.dataparallel.tensorflow.keras import callbacks

__all__ = [
    "Compression",
    "DistributedOptimizer",
    "ReduceOp",
    "broadcast",
    "broadcast_global_variables",
    "broadcast_variables",
    "callbacks",
    "init",
    "local_rank",
    "local_size",
    "oob_allreduce",
    "rank",
    "shutdown",
    "size",
]

__getattr__ = not_covered(__name__, __all__)
