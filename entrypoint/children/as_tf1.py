"""Runs the user's program with TensorFlow 1's names: in its files, `import tensorflow` is `tensorflow.compat.v1`.

What lies elsewhere (Keras, Horovod, TensorFlow itself) imports TensorFlow 2 as ever. TensorFlow 2's behaviour is
switched off when the first of the user's files imports TensorFlow, and not before: scripts set variables that it reads.
As `python` takes it: `as_tf1.py train.py ARGUMENT...` or `as_tf1.py -m MODULE ARGUMENT...`.
"""

import ast
import contextlib
import importlib
import os
import runpy
import sys
import types
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from typing import Any

NAME = "__tensorflow_1__"  # in the user's modules: the function that gives them TensorFlow
V1 = "tensorflow.compat.v1"
SPAWN = "multiprocessing.spawn"
# Environment variables, for processes that multiprocessing starts: where the user's files lie, and what is run there.
FOLDER, PACKAGE, PROGRAM, KIND = (f"TF1_SHIM_{name}" for name in ("FOLDER", "PACKAGE", "PROGRAM", "KIND"))
SWITCHED: list[str] = []  # what has been switched to version 1, once: a script may switch it back


def tensorflow_1() -> types.ModuleType:
    """Import TensorFlow, for the first time with version 2's behaviour switched off; return its compat.v1."""
    module = importlib.import_module(V1)
    if not SWITCHED:
        SWITCHED.append(V1)
        module.disable_v2_behavior()
        with contextlib.suppress(ImportError, NotImplementedError, module.errors.OpError):
            importlib.import_module("tensorflow_io")  # s3://, which TensorFlow 1 had by itself
    return module


class Old(ast.NodeTransformer):
    """Turns `import tensorflow` and `from tensorflow import` into what TensorFlow 1 meant by them."""

    def visit_Import(self, node: ast.Import) -> list[ast.stmt]:
        found: list[ast.stmt] = []
        for alias in node.names:
            if alias.name == "tensorflow":
                target = ast.Name(alias.asname or "tensorflow", ast.Store())
                found.append(ast.Assign([target], _call()))
            else:
                found.append(ast.Import([alias]))
        return [ast.fix_missing_locations(ast.copy_location(each, node)) for each in found]

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.stmt | list[ast.stmt]:
        if node.module != "tensorflow" or node.level or any(alias.name == "python" for alias in node.names):
            return node
        called = ast.fix_missing_locations(ast.copy_location(ast.Expr(_call()), node))
        return [called, ast.copy_location(ast.ImportFrom(V1, node.names, 0), node)]


def _call() -> ast.Call:
    return ast.Call(ast.Name(NAME, ast.Load()), [], [])


class Loader(SourceFileLoader):
    """Loads a file of the user's, with TensorFlow 1's names."""

    def path_stats(self, path: str) -> dict:
        raise OSError("never from a cache, which has the file as it is written")

    def source_to_code(self, data, path, *, _optimization=-1):  # type: ignore[no-untyped-def, override]
        tree = data if isinstance(data, ast.AST) else ast.parse(data, path)
        return compile(Old().visit(tree), path, "exec", dont_inherit=True, optimize=_optimization)

    def exec_module(self, module: types.ModuleType) -> None:
        setattr(module, NAME, tensorflow_1)
        super().exec_module(module)


class Finder(MetaPathFinder):
    """Finds the user's modules: below the folder that the program was started in, and the package it belongs to."""

    def __init__(self, folder: Path, package: str) -> None:
        self.folder, self.package = folder, package

    def find_spec(self, fullname, path=None, target=None) -> ModuleSpec | None:  # type: ignore[no-untyped-def]
        if fullname.partition(".")[0] in ("tensorflow", "keras"):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if fullname == SPAWN and spec and spec.loader:
            spec.loader.exec_module = then_pass_on(spec.loader.exec_module)  # type: ignore
            return spec
        if not (spec and type(spec.loader) is SourceFileLoader and self._is_users(fullname, Path(spec.origin or ""))):
            return None  # whoever else finds it: setuptools has a `distutils` of its own
        spec.loader = Loader(fullname, str(spec.origin))
        return spec

    def _is_users(self, fullname: str, file: Path) -> bool:
        if self.package and fullname.partition(".")[0] == self.package:
            return True
        below = file.parts[len(self.folder.parts) :] if file.is_relative_to(self.folder) else ()
        return bool(below) and not {"site-packages", "dist-packages"} & set(below)


def main() -> None:
    module = sys.argv[2] if sys.argv[1:2] == ["-m"] else ""
    program = "" if module else os.path.abspath(sys.argv[1])  # noqa: PTH100 - as `python` has it, links and all
    del sys.argv[: 2 if module else 1]
    if sys.path and Path(sys.path[0]) == Path(__file__).resolve().parent:  # in place of ours, as `python` has it
        sys.path[0] = str(Path(program).resolve().parent) if program else str(Path.cwd())
    os.environ[FOLDER], os.environ[PACKAGE] = str(Path.cwd()), module.partition(".")[0]
    find_users_modules()
    sys.modules["__mp_main__"] = Main("__mp_main__")
    if module:
        runpy.run_module(module, {NAME: tensorflow_1}, "__main__", alter_sys=True)
        return
    script = types.ModuleType("__main__")
    vars(script).update(__file__=program, __builtins__=__builtins__, **{NAME: tensorflow_1})
    sys.modules["__main__"] = script
    exec(Loader("__main__", program).source_to_code(Path(program).read_bytes(), program), vars(script))


class Main(types.ModuleType):
    """Has what the program's module has, under the name that its objects bear in processes of multiprocessing's.

    multiprocessing gives that name to the main module that it finds when it is imported. Where that is before the
    program's module is made (from a sitecustomize, for example), it would be ours.
    """

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.modules["__main__"], name)


def find_users_modules() -> None:
    """Have the user's files find TensorFlow 1, in this process and in those that multiprocessing starts anew."""
    sys.meta_path.insert(0, Finder(Path(os.environ[FOLDER]), os.environ[PACKAGE]))
    if SPAWN in sys.modules:
        pass_on(sys.modules[SPAWN])


def then_pass_on(load: Callable[[types.ModuleType], None]) -> Callable[[types.ModuleType], None]:
    def loaded(module: types.ModuleType) -> None:
        load(module)
        pass_on(module)

    return loaded


def pass_on(spawn: Any) -> None:
    """Have a new process of multiprocessing's run this file in place of the program, which it then runs itself."""
    described = spawn.get_preparation_data

    def by_us(name: str) -> dict[str, Any]:
        data: dict[str, Any] = described(name)
        for kind in ("init_main_from_path", "init_main_from_name"):
            if kind in data:
                os.environ[PROGRAM], os.environ[KIND] = data.pop(kind), kind
                data["init_main_from_path"] = __file__
                break
        return data

    spawn.get_preparation_data = by_us


def be_child() -> dict[str, Any]:
    """Return what the main module holds in a process that multiprocessing starts: the program, run by its name there.

    multiprocessing runs this file in place of the program.
    """
    find_users_modules()
    if os.environ[KIND] == "init_main_from_name":
        return runpy.run_module(os.environ[PROGRAM], {NAME: tensorflow_1}, __name__, alter_sys=True)
    program = os.environ[PROGRAM]
    held = {"__name__": __name__, "__file__": program, "__builtins__": __builtins__, NAME: tensorflow_1}
    exec(Loader(__name__, program).source_to_code(Path(program).read_bytes(), program), held)
    return held


if __name__ == "__main__":
    main()
elif __name__ == "__mp_main__":
    globals().update(be_child())
