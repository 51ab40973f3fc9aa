"""Provide what Python 3.10 lacks, or Python on macOS. AWS's image of TensorFlow 2.14 has 3.10."""

import os
import sys

if sys.version_info >= (3, 11):  # novm
    from enum import StrEnum
    from typing import assert_never, dataclass_transform
else:
    from enum import Enum
    from typing import Any, NoReturn

    class StrEnum(str, Enum):
        """Enumerate strings: str() and format() return the value, as in Python 3.11's StrEnum."""

        __str__ = str.__str__
        __format__ = str.__format__

    def assert_never(value: NoReturn) -> NoReturn:
        raise AssertionError(f"unexpected value {value!r}")

    def dataclass_transform(**_: Any) -> Any:
        return lambda kind: kind


def process_cpu_count() -> int:
    """Return how many CPUs this process may use, like os.process_cpu_count of Python 3.13; on macOS, that is all."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# This option keeps the folder of a script, or the current folder, out of sys.path.
SAFE_PATH = ("-P",) if sys.version_info >= (3, 11) else ()  # novm

__all__ = ["SAFE_PATH", "StrEnum", "assert_never", "dataclass_transform", "process_cpu_count"]
