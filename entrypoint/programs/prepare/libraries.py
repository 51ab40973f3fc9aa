"""Find which shared libraries can be loaded here, and where a library looks for others."""

import mmap
import struct
from pathlib import Path

LOAD, DYNAMIC = 1, 2  # kinds of segments; the next line has kinds of entries in the dynamic one: elf(5)
STRINGS, RPATH, RUNPATH = 5, 15, 29


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
