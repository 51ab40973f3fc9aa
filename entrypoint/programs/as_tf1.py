"""Run the user's program with TensorFlow 1's names, which `on_path/entrypoint_tf1.py` provides.

It takes what `python` takes: `as_tf1.py train.py ARGUMENT...` or `as_tf1.py -m MODULE ARGUMENT...`.
"""

import importlib
import runpy
import sys
import types
from pathlib import Path
from typing import Any

ON_PATH = str(Path(__file__).resolve().parent / "on_path")


class Main(types.ModuleType):
    """Provide the program's names under the name that its objects have in processes of multiprocessing.

    When multiprocessing is imported, it gives that name to the present main module. If that happens before the
    program's module is made (in a sitecustomize, for example), the main module would be ours.
    """

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.modules["__main__"], name)


def main() -> None:
    sys.path.insert(0, ON_PATH)
    entrypoint_program: Any = importlib.import_module("entrypoint_program")
    entrypoint_tf1: Any = importlib.import_module("entrypoint_tf1")
    sys.path.remove(ON_PATH)
    program, module = entrypoint_program.taken()
    entrypoint_tf1.begin(Path.cwd(), module.partition(".")[0])
    sys.modules["__mp_main__"] = Main("__mp_main__")
    if module:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        return
    code = entrypoint_tf1.UsersLoader("__main__", program).source_to_code(Path(program).read_bytes(), program)
    exec(code, entrypoint_program.names_of_main(program))


if __name__ == "__main__":
    main()
