"""Describe what goes wrong on demand. The wordings are SageMaker's, as users quote them in public issues."""

from dataclasses import dataclass, field
from fnmatch import fnmatch

NO_CAPACITY = (
    "CapacityError: Unable to provision requested ML compute capacity. Please retry using a different ML instance type."
)
NO_IMAGE = (
    "ClientError: Cannot pull algorithm container. Either the image does not exist or its permissions are incorrect."
)


@dataclass(kw_only=True)
class Faults:
    """Faults of calls, by operation, and of jobs, by patterns of job names such as `second-*`."""

    throttled: dict[str, int] = field(default_factory=dict)  # operation: how many of its next calls
    denied: set[str] = field(default_factory=set)  # operations; PassRole is asked for by CreateTrainingJob
    unassumable: list[str] = field(default_factory=list)  # the role of these jobs cannot be assumed
    without_capacity: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)  # the role of these jobs must not read the channels


def hit(patterns: list[str], name: str) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)
