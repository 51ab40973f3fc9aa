"""Find GPUs of this host that its TensorFlow cannot use. TensorFlow is not imported, and CUDA not started."""

import importlib
import mmap
import os
import re
import struct
from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path

from pins import is_alias

NVIDIA = re.compile(r"ml\.(p\d|g(?!4ad)\d|gr\d)")  # SageMaker's instance types with GPUs of NVIDIA
BUILD_INFO = "python/platform/build_info.py"
OPENS_OTHERS = "libtensorflow_framework.so.2"
DRIVER = "libcuda.so.1"
# The versions in the names of libraries, by CUDA's version: tsl/platform/default/dso_loader.cc loads them by name.
WITH_CUDA = {
    "11": {"cudart": "11.0", "cublas": "11", "cublasLt": "11", "cufft": "10", "cusolver": "11", "cusparse": "11"},
    "12": {"cudart": "12", "cublas": "12", "cublasLt": "12", "cufft": "11", "cusolver": "11", "cusparse": "12"},
}
LOAD, DYNAMIC = 1, 2  # kinds of segments; the next line has kinds of entries in the dynamic one: elf(5)
STRINGS, RPATH, RUNPATH = 5, 15, 29


def has_gpus(seen: int, instance_type: str) -> bool:
    """Return whether this host has NVIDIA GPUs that the job does not hide, whether or not the container sees them.

    The arguments are those of `unused`.
    """
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return False
    return bool(_count(seen) or NVIDIA.match(instance_type))


def visible(seen: int) -> int:
    """Return how many GPUs the programs of this host see; `seen` as in `unused`."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is None or not _count(seen):
        return _count(seen)
    return len([word for word in given.split(",") if word.strip() not in ("", "-1")])


def unused(seen: int, instance_type: str, path: Sequence[str]) -> str:
    """Return the number of GPUs and why TensorFlow cannot use them; "" if it can.

    `seen`: GPUs that nvidia-smi lists; `instance_type` as in resourceconfig.json; `path`: sys.path of the program. The
    result is "", too, if there is no TensorFlow, if its build is unknown, or if the job hides its GPUs.
    """
    if not has_gpus(seen, instance_type):
        return ""
    count = _count(seen)
    why = _of_tensorflow(path)
    if why and not count:
        return f"{instance_type}: {why}"
    return why and f"{count} GPU{'s' * (count > 1)}: {why}"


def _count(seen: int) -> int:
    return max(seen, sum(1 for file in Path("/dev").glob("nvidia[0-9]*") if file.name[6:].isdigit()))


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
    of_wheels = [folder for entry in path if entry for folder in Path(entry).glob("nvidia/*/lib")]
    folders = looked_in(told.parents[2] / OPENS_OTHERS) or of_wheels
    # A library is there if it lies where TensorFlow itself looks, or can be loaded. pip installs no driver.
    missing = [
        name
        for name in (DRIVER, *_of_cuda(text))
        if not (name != DRIVER and any((folder / name).exists() for folder in folders)) and not loads(name)
    ]
    return f"{_name(told.parents[3])} cannot load {', '.join(missing)}" if missing else ""


def _of_cuda(build_info: str) -> list[str]:
    """Return the libraries that such a build loads at its start. Without one of them it uses no GPU at all."""
    cuda = re.search(r"'cuda_version', '(\d+)", build_info)
    cudnn = re.search(r"'cudnn_version', '(\d+)", build_info)
    versions = WITH_CUDA.get(cuda[1], {}) if cuda else {}
    versions = {**versions, "cudnn": cudnn[1]} if cudnn else versions
    return [f"lib{name}.so.{version}" for name, version in versions.items()]


def _name(packages: Path) -> str:
    """Return `tensorflow-cpu 2.14.1`, by the distributions beside the package; leave out the aliases that we made."""
    wheels = re.compile(r"(tensorflow(?:_cpu|_gpu)?|tf_nightly(?:_cpu|_gpu)?|intel_tensorflow)-(.+)\.dist-info")
    real = [file.name for file in sorted(packages.glob("*t*f*.dist-info")) if not is_alias(file)]
    found = [match for name in real if (match := wheels.fullmatch(name))]
    return " and ".join(f"{match[1].replace('_', '-')} {match[2]}" for match in found) or "TensorFlow"


def loads(library: str) -> bool:
    """Return whether the linker finds a library, with all that it needs. It is loaded into this short-lived process."""
    import ctypes  # here, since a Python that was built without libffi has none, and most jobs need none

    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def looked_in(library: Path) -> list[Path]:
    """Return the folders where a 64-bit library looks for others before the system's; [] if it cannot be read.

    They are those of its RUNPATH, or RPATH; `$ORIGIN` is its own folder.
    """
    try:
        with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            named = dict.fromkeys(_search_path(content).split(":"))  # TensorFlow's have some folders a hundred times
    except (OSError, ValueError, struct.error, StopIteration):
        return []
    own = str(library.parent)
    return [Path(name.replace("${ORIGIN}", own).replace("$ORIGIN", own)) for name in named if name]


def _search_path(content: mmap.mmap) -> str:
    if content[:5] != b"\x7fELF\x02":
        return ""
    begins, size, count = *struct.unpack_from("<Q", content, 32), *struct.unpack_from("<HH", content, 54)
    segments = [struct.unpack_from("<IIQQQQ", content, begins + number * size) for number in range(count)]
    entries = {
        name: value
        for kind, _, at, _, _, long in segments
        if kind == DYNAMIC
        for name, value in struct.iter_unpack("<QQ", content[at : at + long])
    }
    path = entries.get(RUNPATH, entries.get(RPATH))
    if path is None:
        return ""
    address = entries.get(STRINGS, 0) + path
    at = next(
        at + address - first
        for kind, _, at, first, _, long in segments
        if kind == LOAD and first <= address < first + long
    )
    return content[at : content.find(b"\0", at)].decode(errors="replace")
