"""Explain errors of GPUs, NCCL, XLA and mpirun whose own text does not show the reason. Pure."""

import re
from collections.abc import Sequence

NEAR_LINES = 300  # last lines in which an allocator's report of the exhausted memory is looked for
GIB = 1 << 30

_MEANINGS = (
    (
        re.compile(r"nccl.*\binvalid usage\b|ncclInvalidUsage|Duplicate GPU detected", re.IGNORECASE),
        "NCCL reports this if two ranks use one GPU: set ENTRYPOINT_PROCESSES_PER_HOST to at most a host's number of "
        "GPUs, and call pin_gpu() of sagemaker_tf_data",
    ),
    (
        re.compile(r"Trying to access resource \S+( \(defined @ .*\))? located in device "),
        "XLA cannot use variables of another device: with parameter servers, give Keras's optimizer jit_compile=False",
    ),
    (
        re.compile(r"has detected an attempt to run as root"),
        "a script that calls it as root gives it --allow-run-as-root, or sets OMPI_ALLOW_RUN_AS_ROOT=1 and "
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
    ),
    (
        re.compile(r"All nodes which are allocated for this job are already filled"),
        "mpirun reports this, too, if a host's name began to resolve to this machine during the start: check name "
        "resolution on this host",
    ),
)
_EXHAUSTED = re.compile(r"ResourceExhausted|RESOURCE_EXHAUSTED|CUDA_ERROR_OUT_OF_MEMORY|OOM when allocating")
_GPU = re.compile(r"device:GPU:(\d+)|\bGPU_(\d+)_bfc\b")
_ON_GPU = re.compile(r"failed to allocate|[Oo]ut of memory|OOM when allocating|ran out of memory")
_ASKED = re.compile(r"trying to allocate ([\d.]+ ?[KMGT]?i?B?)\b|\bBin for ([\d.]+[KMGT]?i?B) was ")
_USED = {"limit": re.compile(r"^Limit: +(\S+)"), "used": re.compile(r"^InUse: +(\S+)")}


def meaning(error: str, lines: Sequence[str]) -> str:
    """Return what an error means, or "" if its own text is clear. `lines`: the last output."""
    if _EXHAUSTED.search(error):
        return _exhausted(lines[-NEAR_LINES:])
    return next((words for pattern, words in _MEANINGS if pattern.search(error)), "")


def _exhausted(lines: Sequence[str]) -> str:
    """Return which GPU's memory is exhausted, as the allocator reports it; "" if it was no GPU's."""
    on_gpus = [found for line in lines if _ON_GPU.search(line) and (found := _GPU.search(line))]
    if not on_gpus:
        return ""
    number = next(filter(None, on_gpus[-1].groups()))
    asked = [next(filter(None, match.groups())) for line in lines if (match := _ASKED.search(line))]
    sizes = {
        name: _size(values[-1])
        for name, pattern in _USED.items()
        if (values := [match[1] for line in lines if (match := pattern.search(line))])
    }
    words = [f"{_size(asked[-1])} asked for"] if asked else []
    if len(sizes) == len(_USED):
        words.append(f"{sizes['used']} of {sizes['limit']} in use")
    return f"out of memory on GPU {number}" + (f": {', '.join(words)}" if words else "")


def _size(text: str) -> str:
    """Return a size as text; some allocators report plain bytes."""
    text = text.removesuffix("bytes").strip()
    return f"{int(text) / GIB:.2f}GiB" if text.isdecimal() else text
