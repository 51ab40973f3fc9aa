"""Provide, by Horovod, the names that the library's last version for TensorFlow (1.2) documents.

SageMaker Python SDK documentation, "TensorFlow Guide to SageMaker's distributed data parallel library".
"""

from typing import Any

import horovod.tensorflow as hvd
import tensorflow as tf
from horovod.tensorflow import (
    BroadcastGlobalVariablesHook,
    Compression,
    broadcast_global_variables,
    broadcast_variables,
    init,
    local_rank,
    local_size,
    rank,
    shutdown,
    size,
)
from smdistributed.dataparallel import not_covered

__all__ = [
    "BroadcastGlobalVariablesHook",
    "Compression",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "ReduceOp",
    "allreduce",
    "broadcast",
    "broadcast_global_variables",
    "broadcast_variables",
    "init",
    "local_rank",
    "local_size",
    "oob_allreduce",
    "overlap",
    "rank",
    "shutdown",
    "size",
]

__getattr__ = not_covered(__name__, __all__)


class ReduceOp:
    AVERAGE = hvd.Average
    SUM = hvd.Sum
    MIN = hvd.Min
    MAX = hvd.Max


def oob_allreduce(tensor: Any, compression: Any = Compression.none, op: Any = ReduceOp.AVERAGE) -> Any:
    """Return the average over all ranks (or what `op` asks for), on every rank."""
    return hvd.allreduce(_tensor(tensor), compression=compression, op=_average(op))


def allreduce(
    tensor: Any, param_index: int, num_params: int, compression: Any = Compression.none, op: Any = ReduceOp.AVERAGE
) -> Any:
    """Do the same as `oob_allreduce`. Horovod needs no numbers of tensors."""
    return oob_allreduce(tensor, compression, op)


def broadcast(tensor: Any, root_rank: int) -> Any:
    return hvd.broadcast(_tensor(tensor), root_rank)


def overlap(tensor: Any) -> Any:
    """Return the tensor. In the library this is a hint for XLA; Horovod overlaps without one."""
    return tensor


# sparse_as_dense is true since the library's version 1.2.1.
def DistributedGradientTape(
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = True,
    op: Any = ReduceOp.AVERAGE,
) -> tf.GradientTape:
    _no_devices(device_dense, device_sparse)
    _only_average("DistributedGradientTape", op)
    return hvd.DistributedGradientTape(gradtape, compression=compression, sparse_as_dense=sparse_as_dense)


def DistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = True,
    op: Any = ReduceOp.AVERAGE,
    bucket_cap_mb: int | None = None,
) -> Any:
    """Distribute an optimizer of Keras or TF1. `bucket_cap_mb` has no effect; set HOROVOD_FUSION_THRESHOLD (bytes)."""
    _no_devices(device_dense, device_sparse)
    _only_average("DistributedOptimizer", op)
    return hvd.DistributedOptimizer(
        optimizer, name=name, use_locking=use_locking, compression=compression, sparse_as_dense=sparse_as_dense
    )


def _tensor(value: Any) -> Any:
    return value if isinstance(value, tf.IndexedSlices) else tf.convert_to_tensor(value)


def _average(op: Any) -> Any:
    return ReduceOp.AVERAGE if op is None else op


def _only_average(what: str, op: Any) -> None:
    if _average(op) != ReduceOp.AVERAGE:
        raise NotImplementedError(
            f"{what} has op={op!r}; wanted ReduceOp.AVERAGE, as in the library. For others: horovod.tensorflow.{what}"
        )


def _no_devices(device_dense: str, device_sparse: str) -> None:
    if device_dense or device_sparse:
        raise NotImplementedError(
            f"device_dense={device_dense!r}, device_sparse={device_sparse!r}: not covered, as the library has neither. "
            "Leave them out, or use horovod.tensorflow itself"
        )
