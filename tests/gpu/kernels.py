"""Find the kernels in a GPU library, and remove those that one generation of GPUs never runs.

CUDA's compilers link *fat binaries* into a library. Each has a header (magic, version, its own size, the size of what
follows) and entries: the same kernels as a program (SASS) for some generations of GPUs, and as PTX or other code that
the driver compiles. Of each fat binary the driver takes the program for its GPU, else one that the GPU can run, else
it compiles. What it never takes is overwritten with zeros: the layout stays, and zeros are packed into nothing.
"""

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

MAGIC = struct.pack("<IHH", 0xBA55ED50, 1, 16)  # of version 1, with a header of 16 bytes
PROGRAM = 2  # the kind of an entry; 1 is PTX, others are code in other stages
KINDS = (1, PROGRAM, 4, 8, 16)
LEAST_HEADER, LARGEST_HEADER = 32, 4096  # bytes of an entry's: what is outside is no entry


class Entry(NamedTuple):
    """One entry of a fat binary. `generation`: 90 for sm_90. `start` and `end`: of its code, without its header."""

    kind: int
    generation: int
    start: int
    end: int

    def runs_on(self, generation: int) -> bool:
        """Return whether that GPU runs it: a program of its major version, or code to be compiled, and not newer."""
        same_major = self.generation // 10 == generation // 10
        return self.generation <= generation and (self.kind != PROGRAM or same_major)


def fat_binaries(data: Any) -> Iterator[list[Entry]]:
    """Yield the entries of each fat binary in the bytes of a library (anything with `find` that struct reads)."""
    at = 0
    while (at := data.find(MAGIC, at)) >= 0:
        end = _end(data, at)
        if end is None:  # the same bytes by chance
            at += 4
            continue
        if found := list(_entries(data, at + len(MAGIC) + 8, end)):
            yield found
        at = end


def unused(entries: list[Entry], generation: int) -> list[Entry]:
    """Return the entries of a fat binary that a GPU of this generation never runs."""
    exact = [entry for entry in entries if entry.kind == PROGRAM and entry.generation == generation]
    return [entry for entry in entries if (entry not in exact if exact else not entry.runs_on(generation))]


def strip(data: Any, generation: int) -> tuple[int, int]:
    """Overwrite what a GPU of this generation never runs; return (bytes of all kernels, bytes overwritten)."""
    size = gone = 0
    for entries in fat_binaries(data):
        size += sum(entry.end - entry.start for entry in entries)
        for entry in unused(entries, generation):
            data[entry.start : entry.end] = bytes(entry.end - entry.start)
            gone += entry.end - entry.start
    return size, gone


def _end(data: Any, at: int) -> int | None:
    if at + len(MAGIC) + 8 > len(data):
        return None
    (size,) = struct.unpack_from("<Q", data, at + len(MAGIC))
    end = at + len(MAGIC) + 8 + size
    return end if end <= len(data) else None


def _entries(data: Any, at: int, end: int) -> Iterator[Entry]:
    while at + LEAST_HEADER <= end:
        kind, _, header, size = struct.unpack_from("<HHIQ", data, at)
        (generation,) = struct.unpack_from("<I", data, at + 28)
        start = at + header
        if kind not in KINDS or not LEAST_HEADER <= header <= LARGEST_HEADER or start + size > end:
            return
        yield Entry(kind, generation, start, start + size)
        at = start + size
