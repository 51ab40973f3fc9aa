"""Take the user's program from this process's arguments, and set this process up as `python` would for it."""

import os
import sys
import types
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).resolve().parents[1]  # the folder of the programs that do so


def taken() -> tuple[str, str]:
    """Return (file, module) of the program, of which one is "", and set sys.argv and sys.path for it.

    The arguments are those that `python` takes: FILE ARGUMENT..., or -m MODULE ARGUMENT...
    """
    module = sys.argv[2] if sys.argv[1:2] == ["-m"] else ""
    program = "" if module else os.path.abspath(sys.argv[1])  # noqa: PTH100 - keeps links, as `python` does
    del sys.argv[: 2 if module else 1]
    if sys.path and Path(sys.path[0]) == PROGRAMS:
        sys.path[0] = str(Path(program).resolve().parent) if program else str(Path.cwd())
    return program, module


def names_of_main(program: str) -> dict[str, Any]:
    """Make a main module for a file in this process. Return the module's names: the file runs in them."""
    script = types.ModuleType("__main__")
    vars(script).update(__file__=program, __builtins__=__builtins__)
    sys.modules["__main__"] = script
    return vars(script)
