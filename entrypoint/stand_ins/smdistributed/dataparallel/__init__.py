"""Stands in for SageMaker's data-parallel library, which is not to be had for this TensorFlow: its calls go to Horovod.

On PYTHONPATH behind everything else, and only of jobs with `sagemaker_distributed_dataparallel_enabled`: a real
library that is installed comes first. `smdistributed` has no `__init__.py`, so that it can be in several places.
"""

from collections.abc import Callable
from typing import NoReturn


def not_covered(module: str, covered: list[str]) -> Callable[[str], NoReturn]:
    """Return a module's `__getattr__` for the names that it does not have."""

    def missing(name: str) -> NoReturn:
        raise AttributeError(
            f"{module}.{name} is not covered: this image has Horovod in place of SageMaker's data-parallel library, "
            f"with {', '.join(covered)} under its names. Use one of these, or horovod.tensorflow itself",
            name=name,
        )

    return missing
