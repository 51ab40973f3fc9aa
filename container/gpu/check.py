"""Check an image for GPUs without a GPU: versions, missing libraries, Horovod's kernels, XLA's compiler.

The build runs it in /opt/venv, and tests/cluster/test_cluster_gpu_image.py in the image.
"""

import ctypes
import re
import struct
import subprocess
from importlib.metadata import distributions
from pathlib import Path

import horovod.tensorflow as hvd
import tensorflow as tf

PACKAGES = Path(tf.__file__).parents[1]
NVIDIA = PACKAGES / "nvidia"
DRIVER = {"libcuda.so.1", "libnvidia-ml.so.1"}  # the host's: NVIDIA's container runtime mounts them
LOADED = {"libtensorflow_cc.so.2", "libtensorflow_framework.so.2"}  # loaded before Horovod, which has no path to them
# Entries of a file with kernels: (kind: 1 is PTX, 2 a program; generation of GPUs).
KERNELS = {(2, 60), (2, 70), (2, 80), (2, 90), (1, 90)}
FAT_BINARY = struct.pack("<IHH", 0xBA55ED50, 1, 16)


def versions() -> dict[str, tuple[int, ...]]:
    """Return the versions of NVIDIA's libraries by the names of their folders: `nccl`, `cuda_runtime`."""
    found = {}
    for each in distributions():
        if name := re.fullmatch(r"nvidia[-_](.+)[-_]cu\d+", each.name):
            found[name[1].replace("-", "_")] = tuple(int(part) for part in each.version.split(".") if part.isdigit())
    return found


def linked(library: Path) -> str:
    return subprocess.run(["ldd", library], capture_output=True, text=True, check=True).stdout


def missing(library: Path) -> set[str]:
    """Return the libraries that the linker does not find for `library`."""
    return {line.split()[0] for line in linked(library).splitlines() if "not found" in line}


def kernels(library: Path) -> set[tuple[int, int]]:
    content = library.read_bytes()
    at = content.index(FAT_BINARY)
    end = at + 16 + struct.unpack_from("<Q", content, at + 8)[0]
    at, found = at + 16, set()
    while at < end:
        kind, _, header, size = struct.unpack_from("<HHIQ", content, at)
        found.add((kind, struct.unpack_from("<I", content, at + 28)[0]))
        at += header + size
    return found


def compiles(nvrtc: Path) -> bool:
    """Return whether CUDA's run-time compiler at this path compiles a kernel, which needs no GPU."""
    library, program = ctypes.CDLL(str(nvrtc)), ctypes.c_void_p()
    source = b'extern "C" __global__ void add(float* x) { x[threadIdx.x] += 1.0f; }'
    made = library.nvrtcCreateProgram(ctypes.byref(program), source, b"add.cu", 0, None, None)
    return made == 0 and library.nvrtcCompileProgram(program, 0, None) == 0


has, build = versions(), tf.sysconfig.get_build_info()
print("TensorFlow is built with CUDA", build["cuda_version"], "and cuDNN", build["cudnn_version"], "and here are", has)
wanted = tuple(int(part) for part in build["cuda_version"].split("."))
assert has["cuda_runtime"][0] == wanted[0] and has["cuda_runtime"] >= wanted
assert str(has["cudnn"][0]) == build["cudnn_version"]
major, minor, patch = has["nccl"][:3]
assert hvd.nccl_built() == major * 10000 + minor * 100 + patch, hvd.nccl_built()
assert hvd.cuda_built() and hvd.mpi_built() and hvd.gloo_built()

libraries = [each for name in ("tensorflow", "horovod") for each in (PACKAGES / name).rglob("*.so*")]
libraries += NVIDIA.glob("*/lib*/*.so*")
lacks = {str(each.relative_to(PACKAGES)): missing(each) - DRIVER for each in libraries}
lacks = {name: found - LOADED if name.startswith("horovod/") else found for name, found in lacks.items()}
assert lacks and not any(lacks.values()), {name: found for name, found in lacks.items() if found}
(horovod,) = (PACKAGES / "horovod/tensorflow").glob("mpi_lib*.so")
told = linked(horovod)
assert re.search(rf"libnccl\.so\.2 => {NVIDIA}/", told) and re.search(rf"libcudart\.so\.\S+ => {NVIDIA}/", told), told
assert kernels(horovod) == KERNELS, kernels(horovod)

# cuDNN 8 opens this name in its own folder at the first convolution.
for each in (each for each in libraries if b"libnvrtc.so\0" in each.read_bytes()):
    assert compiles(each.with_name("libnvrtc.so")), each
ptxas = subprocess.run([NVIDIA / "cuda_nvcc/bin/ptxas", "--version"], capture_output=True, text=True, check=True).stdout
assert f"release {has['cuda_runtime'][0]}.{has['cuda_runtime'][1]}," in ptxas, ptxas
assert (NVIDIA / "cuda_nvcc/nvvm/libdevice/libdevice.10.bc").is_file()
