"""Read what SageMaker passes to a serving container: environment variables and the model folder."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from entrypoint.base.errors import ConfigError

DEFAULT_PORT = 8080
MEGABYTE = 1 << 20
DEFAULT_PAYLOAD = 100  # MB that a request may have if SageMaker sets no limit; its own limits are lower
NO_LIMIT = 4096  # MB, if SageMaker sets 0
DEFAULT_BATCH_PAYLOAD = 6  # MB that batch transform is asked to send at once


@dataclass(frozen=True)
class Serving:
    base: Path
    port: int
    threads: int  # that predict
    max_payload: int  # bytes
    accept: str  # what a client gets that accepts anything
    program: str  # the user's, in the code folder; "" if the SDK names none
    default_name: str  # which model, if there are several
    execution: Mapping[str, int | str]  # for batch transform

    @property
    def model(self) -> Path:
        return self.base / "model"

    @property
    def accept_type(self) -> str:
        """Return `accept` without parameters, such as a charset."""
        return self.accept.partition(";")[0].strip()


def read_serving(environment: Mapping[str, str]) -> Serving:
    """Read the variables. Raise ConfigError if a value is not possible."""
    payload = _number(environment, "SAGEMAKER_MAX_PAYLOAD_IN_MB", -1, "megabytes, 0 for no limit")
    # TensorFlow computes outside of Python's lock, and uses all CPUs for one prediction: a few more threads than CPUs
    # keep these busy while others read and write JSON.
    threads = _number(environment, "SAGEMAKER_MODEL_SERVER_WORKERS", 0, "how many requests are answered at once")
    threads = threads or max(4, 2 * len(os.sched_getaffinity(0)))
    batch_payload = payload if payload > 0 else DEFAULT_BATCH_PAYLOAD
    # SageMaker wants their product to be 100 MB at most.
    at_once = max(1, min(threads, 100 // batch_payload))
    return Serving(
        base=Path(environment.get("SAGEMAKER_BASE_DIR") or "/opt/ml"),
        port=_number(environment, "SAGEMAKER_BIND_TO_PORT", DEFAULT_PORT, "a port"),
        threads=threads,
        max_payload={-1: DEFAULT_PAYLOAD, 0: NO_LIMIT}.get(payload, payload) * MEGABYTE,
        accept=environment.get("SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT") or "application/json",
        # Without the second variable, which the SDK always sends, it may be the script of a training image.
        program=environment.get("SAGEMAKER_PROGRAM", "") if "SAGEMAKER_SUBMIT_DIRECTORY" in environment else "",
        default_name=environment.get("SAGEMAKER_TFS_DEFAULT_MODEL_NAME") or "",
        execution={
            "MaxConcurrentTransforms": _number(
                environment, "SAGEMAKER_MAX_CONCURRENT_TRANSFORMS", 0, "a number of requests"
            )
            or at_once,
            "BatchStrategy": environment.get("SAGEMAKER_BATCH_STRATEGY") or "MULTI_RECORD",
            "MaxPayloadInMB": batch_payload,
        },
    )


def _number(environment: Mapping[str, str], name: str, default: int, what: str) -> int:
    text = environment.get(name, "").strip()
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 9 and int(text) < 65536):
        raise ConfigError(f"environment variable {name} is {text[:100]!r}; wanted {what}")
    return int(text)
