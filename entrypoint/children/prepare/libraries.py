"""Whether a shared library can be loaded here. It is asked of the dynamic linker, in this short-lived process."""

from collections.abc import Sequence
from pathlib import Path


def is_there(library: str, path: Sequence[str]) -> bool:
    """Return whether the linker finds it with all that it needs, or NVIDIA's wheels brought it.

    `path`: sys.path of the program. TensorFlow looks in those wheels as well; what pip brought there is not loaded.
    """
    if any(any(Path(entry).glob(f"nvidia/*/lib/{library}")) for entry in path if entry):
        return True
    import ctypes  # here, since few jobs need it

    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True
