"""Replace SageMaker's data-parallel library, which does not exist for this TensorFlow, by calls of Horovod.

The folder stands last on PYTHONPATH, and only in jobs with `sagemaker_distributed_dataparallel_enabled`: a real library
that is installed comes first. `smdistributed` has no `__init__.py`, so that it can lie in several places.
"""

from collections.abc import Callable
from typing import NoReturn


def not_covered(module: str, covered: list[str]) -> Callable[[str], NoReturn]:
    """Return a module's `__getattr__`, which explains names that the module does not have."""

    def missing(name: str) -> NoReturn:
        raise AttributeError(
            f"{module}.{name} is not covered: this image has Horovod in place of SageMaker's data-parallel library, "
            f"with {', '.join(covered)} under its names. Use one of these, or horovod.tensorflow itself",
            name=name,
        )

    return missing
