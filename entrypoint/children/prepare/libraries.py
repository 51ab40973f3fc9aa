"""Whether a shared library can be loaded here. It is asked of the dynamic linker, in this short-lived process."""


def loads(library: str) -> bool:
    """Return whether the linker finds it, with all that it needs."""
    import ctypes  # here, since few jobs need it

    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True
