"""Read what SageMaker passes to a serving container: environment variables, and the model's place in its folder."""

import re
import resource
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from entrypoint.base.errors import ConfigError
from entrypoint.base.python310 import process_cpu_count

DEFAULT_PORT = 8080
MEGABYTE = 1 << 20
DEFAULT_PAYLOAD = 100  # MB that a request may have if SageMaker sets no limit; its own limits are lower
NO_LIMIT = 4096  # MB, if SageMaker sets 0
LONGEST_TIMEOUT = 3600  # seconds for an answer; SageMaker waits no longer
DEFAULT_BATCH_PAYLOAD = 6  # MB that batch transform is asked to send at once
KERAS = (".keras", ".h5", ".hdf5")
WANTED = (
    "wanted a SavedModel in a numbered folder (1/saved_model.pb, or NAME/1/saved_model.pb, or export/NAME/1/...), "
    "a SavedModel in the folder itself, or one file of Keras (.keras or .h5)"
)
_DEEPEST = 5  # names in a path: export/Servo/1/saved_model.pb has 4
_SHOWN = 10


@dataclass(frozen=True)
class Serving:
    base: Path
    port: int
    threads: int  # that predict
    max_payload: int  # bytes
    timeout: int  # seconds for an answer
    accept: str  # what a client gets that accepts anything
    program: str  # the user's, in the code folder; "" if the SDK names none
    default_name: str  # which model, if there are several
    execution: Mapping[str, int | str]  # for batch transform

    @property
    def model(self) -> Path:
        return self.base / "model"

    @property
    def bodies(self) -> int:
        """Return how many bytes the bodies of all requests may take at once, in each of the two processes."""
        return max(2 * self.max_payload, 256 * MEGABYTE)

    @property
    def memory(self) -> int:
        """Return how many bytes it may take to read the bodies of all requests at once.

        That is enough for one body of any ordinary kind. A column of digits in CSV takes the most: 123 bytes for each
        byte of the body. The other half of what is free is for the model, its answers and what HTTP holds.
        """
        return min(max(128 * self.max_payload, 512 * MEGABYTE), free_memory() // 2)

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
    threads = threads or max(4, min(2 * process_cpu_count(), resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 8))
    # SageMaker's own limit is fixed for endpoints, and an hour at most for batch transform.
    usual = LONGEST_TIMEOUT if environment.get("SAGEMAKER_BATCH", "").lower() == "true" else 60
    batch_payload = payload if payload > 0 else DEFAULT_BATCH_PAYLOAD
    # SageMaker wants their product to be 100 MB at most.
    at_once = max(1, min(threads, 100 // batch_payload))
    return Serving(
        base=Path(environment.get("SAGEMAKER_BASE_DIR") or "/opt/ml"),
        port=_number(environment, "SAGEMAKER_BIND_TO_PORT", DEFAULT_PORT, "a port"),
        threads=threads,
        max_payload={-1: DEFAULT_PAYLOAD, 0: NO_LIMIT}.get(payload, payload) * MEGABYTE,
        timeout=_number(environment, "SAGEMAKER_MODEL_SERVER_TIMEOUT", usual, "seconds for an answer, 0: no limit")
        or LONGEST_TIMEOUT,
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
    text = re.sub(r"(?<=\d)\.0*$", "", environment.get(name, "").strip())  # 60.0, too
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 9 and int(text) < 65536):
        raise ConfigError(f"environment variable {name} is {text[:100]!r}; wanted {what}")
    return int(text)


def free_memory(groups: Path = Path("/sys/fs/cgroup"), machine: Path = Path("/proc/meminfo")) -> int:
    """Return how many bytes of memory are free, for the machine and our control group, of version 1 or 2."""
    available = re.search(r"^MemAvailable: +(\d+) kB", machine.read_text(), re.MULTILINE)
    found = [int(available[1]) << 10] if available else []
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        with suppress(OSError, ValueError):  # there is no such file, or it has "max"
            found.append(int((groups / limit).read_text()) - int((groups / used).read_text()))
    return max(0, min(found))


# --- the model: as scripts, Keras and AWS's images leave it in /opt/ml/model ---


@dataclass(frozen=True)
class FoundModel:
    """Hold the place of the model, and how requests may name it."""

    path: Path  # a folder with saved_model.pb, or a file of Keras
    name: str
    version: str


def find_model(folder: Path, name: str = "") -> FoundModel:
    """Return the model, with the highest of its versions.

    Raise ConfigError if there is none, or several and no name fits.
    """
    if not folder.is_dir():
        raise ConfigError(f"there is no folder {folder}; {WANTED}")
    found = [path.parent for path in _files(folder) if path.name in ("saved_model.pb", "saved_model.pbtxt")]
    numbered = [path for path in found if path.name.isascii() and path.name.isdigit() and path != folder]
    if numbered:
        named = [path for path in numbered if path.parent.name == name]
        _only_one({path.parent for path in named or numbered}, folder, "models")
        path = max(named or numbered, key=lambda path: int(path.name))
        return FoundModel(path, path.parent.name, path.name)
    files = [path for path in _files(folder) if path.suffix in KERAS]
    named = [path for path in found + files if name in (path.name, path.stem)]
    candidates = named or found or files
    if not candidates:
        there = sorted(path.name for path in folder.iterdir())
        shown = ", ".join(there[:_SHOWN]) + (", ..." if len(there) > _SHOWN else "") if there else "nothing"
        raise ConfigError(f"found no model in {folder}, but {shown}; {WANTED}")
    _only_one(set(candidates), folder, "models without a number")
    path = candidates[0]
    return FoundModel(path, path.stem if path.is_file() else path.name, "1")


def _files(folder: Path) -> list[Path]:
    """Return the files of a model folder, without the user's code and hidden files."""
    places = (path.relative_to(folder).parts for path in folder.rglob("*") if path.is_file())
    return [
        folder.joinpath(*parts)
        for parts in places
        if len(parts) <= _DEEPEST and parts[0] != "code" and not any(part.startswith(".") for part in parts)
    ]


def _only_one(found: set[Path], folder: Path, what: str) -> None:
    if len(found) > 1:
        names = ", ".join(sorted(str(path.relative_to(folder)) for path in found)[:_SHOWN])
        wanted = "wanted one, or its name in SAGEMAKER_TFS_DEFAULT_MODEL_NAME"
        raise ConfigError(f"found {len(found)} {what} in {folder}: {names}; {wanted}")
