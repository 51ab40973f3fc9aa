"""Whether this host has GPUs that its TensorFlow cannot use. It is looked at, not imported, and no CUDA is started."""

import importlib
import os
import re
from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path

NVIDIA = re.compile(r"ml\.(p\d|g(?!4ad)\d|gr\d)")  # types of SageMaker's instances with GPUs of NVIDIA's
BUILD_INFO = "python/platform/build_info.py"
DRIVER = "libcuda.so.1"


def unused(seen: int, instance_type: str, path: Sequence[str]) -> str:
    """Tell the number of GPUs and why TensorFlow cannot use them; nothing, if all is well.

    `seen`: GPUs that nvidia-smi lists; `instance_type` as in resourceconfig.json; `path`: sys.path of the program.
    Nothing is said where there is no TensorFlow, or one that does not tell how it was built, nor where the job hides
    its GPUs itself.
    """
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return ""
    count = max(seen, sum(1 for file in Path("/dev").glob("nvidia[0-9]*") if file.name[6:].isdigit()))
    if not count and not NVIDIA.match(instance_type):
        return ""
    why = _of_tensorflow(path)
    if why and not count:
        return f"{instance_type}: {why}"
    return why and f"{count} GPU{'s' * (count > 1)}: {why}"


def _of_tensorflow(path: Sequence[str]) -> str:
    importlib.invalidate_caches()  # pip may have installed one a moment ago
    spec = PathFinder.find_spec("tensorflow", path)
    folders = [Path(folder) for folder in (spec and spec.submodule_search_locations) or ()]
    told = next((file for file in (folder / BUILD_INFO for folder in folders) if file.is_file()), None)
    if told is None:
        return ""
    text = told.read_text("utf-8", errors="replace")
    if re.search(r"'is_rocm_build', True", text):
        return ""
    if re.search(r"'is_cuda_build', False", text):
        return f"{_name(told.parents[3])} is built without CUDA"
    cudnn = re.search(r"'cudnn_version', '(\d+)", text)
    missing = [name for name in (DRIVER, *([f"libcudnn.so.{cudnn[1]}"] if cudnn else [])) if not _is_there(name, path)]
    return f"{_name(told.parents[3])} does not find {' and '.join(missing)}" if missing else ""


def _name(packages: Path) -> str:
    """`tensorflow-cpu 2.14.1`, by the distributions that lie beside the package."""
    wheels = re.compile(r"(tensorflow(?:_cpu|_gpu)?|tf_nightly(?:_cpu|_gpu)?|intel_tensorflow)-(.+)\.dist-info")
    found = [match for file in sorted(packages.glob("*t*f*.dist-info")) if (match := wheels.fullmatch(file.name))]
    return " and ".join(f"{match[1].replace('_', '-')} {match[2]}" for match in found) or "TensorFlow"


def _is_there(library: str, path: Sequence[str]) -> bool:
    """Return whether the dynamic linker finds it, or it came with pip, where TensorFlow looks as well."""
    if library != DRIVER and any(any(Path(entry).glob(f"nvidia/*/lib/{library}")) for entry in path if entry):
        return True
    import ctypes  # here, since few jobs need it

    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True
