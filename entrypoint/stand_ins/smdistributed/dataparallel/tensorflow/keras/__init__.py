"""Provide the library for `model.fit`: a distributed optimizer, and the callback that broadcasts variables."""

from smdistributed.dataparallel import not_covered, tensorflow
from smdistributed.dataparallel.tensorflow.keras import callbacks  # noqa: F401

_FOR_LOOPS_ONLY = {"BroadcastGlobalVariablesHook", "DistributedGradientTape", "allreduce", "overlap"}
_shared = {name: getattr(tensorflow, name) for name in tensorflow.__all__ if name not in _FOR_LOOPS_ONLY}
globals().update(_shared)

__all__ = sorted([*_shared, "callbacks"])
__getattr__ = not_covered(__name__, __all__)
