"""Run the user's program with TensorFlow 1's names, which `on_path_tf1/entrypoint_tf1.py` provides.

It takes what `python` takes: `as_tf1.py train.py ARGUMENT...` or `as_tf1.py -m MODULE ARGUMENT...`.
"""

import importlib
import os
import runpy
import sys
import types
from pathlib import Path
from typing import Any

ON_PATH = str(Path(__file__).resolve().parent / "on_path_tf1")


class Main(types.ModuleType):
    """Provide the program's names under the name that its objects have in processes of multiprocessing.

    When multiprocessing is imported, it gives that name to the present main module. If that happens before the
    program's module is made (in a sitecustomize, for example), the main module would be ours.
    """

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.modules["__main__"], name)


def main() -> None:
    module = sys.argv[2] if sys.argv[1:2] == ["-m"] else ""
    program = "" if module else os.path.abspath(sys.argv[1])  # noqa: PTH100 - keeps links, as `python` does
    del sys.argv[: 2 if module else 1]
    sys.path.insert(0, ON_PATH)
    entrypoint_tf1: Any = importlib.import_module("entrypoint_tf1")
    sys.path.remove(ON_PATH)
    if sys.path and Path(sys.path[0]) == Path(__file__).resolve().parent:  # as with `python`
        sys.path[0] = str(Path(program).resolve().parent) if program else str(Path.cwd())
    entrypoint_tf1.begin(Path.cwd(), module.partition(".")[0])
    sys.modules["__mp_main__"] = Main("__mp_main__")
    if module:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        return
    script = types.ModuleType("__main__")
    vars(script).update(__file__=program, __builtins__=__builtins__)
    sys.modules["__main__"] = script
    code = entrypoint_tf1.Loader("__main__", program).source_to_code(Path(program).read_bytes(), program)
    exec(code, vars(script))


if __name__ == "__main__":
    main()
