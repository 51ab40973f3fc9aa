"""Give the user's files TensorFlow 1's names: there, `tensorflow` is `tensorflow.compat.v1`, and `keras` its Keras.

Other files (Keras, Horovod, TensorFlow itself) still import TensorFlow 2. TensorFlow 2's behaviour is switched off when
the first of the user's files imports TensorFlow, and not before: scripts set variables that it reads.

- `UsersLoader` changes the names in imports of the user's files before Python compiles them.
- `Attributes` finds modules of these names that are no files, but only attributes, such as `tf.flags`.
- `begin_again` serves Pythons that read their program unchanged: there, the program's imports are redirected.
"""

import ast
import builtins
import contextlib
import importlib
import os
import sys
import types
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from typing import Any

# Python's builtins get these for the user's files: `tensorflow_1`, and `led` in place of `__import__`.
NAME, IMPORT = "__tensorflow_1__", "__tensorflow_1_import__"
V1 = "tensorflow.compat.v1"
PYTHON_KERAS = f"{V1}.python_keras"  # Keras by the names that it had in tensorflow.python.keras
# Environment variables for Pythons that the program starts: the folder of the user's files, and their package.
FOLDER, PACKAGE = "TF1_SHIM_FOLDER", "TF1_SHIM_PACKAGE"
HERE = str(Path(__file__).resolve().parent)
LED = ("tensorflow", "keras")
AS_THEY_ARE = ("compat", "compiler", "core", "python", "tools")  # below `tensorflow`: the same in both versions
MAINS = ("__main__", "__mp_main__")
SWITCHED: list[str] = []  # filled at the first switch to version 1: a script may switch back


def tensorflow_1() -> types.ModuleType:
    """Import TensorFlow, the first time with version 2's behaviour switched off. Return its compat.v1."""
    module = importlib.import_module(V1)
    if not SWITCHED:
        SWITCHED.append(V1)
        module.disable_v2_behavior()
        module.compat.v1 = module  # the same module, not a copy that lacks Keras
        if not hasattr(module, "python"):
            module.python = importlib.import_module("tensorflow.python")  # type: ignore[attr-defined]
        for name in [name for name in sys.modules if name.startswith(f"{V1}.")]:
            parent, _, last = name.rpartition(".")
            if _is_lazy(vars(sys.modules[parent]).get(last)):
                del sys.modules[name]  # an empty module; Keras's replaces it when it is first used
        with contextlib.suppress(ImportError, NotImplementedError, module.errors.OpError):
            importlib.import_module("tensorflow_io")  # s3://, which TensorFlow 1 had by itself
    return module


def renamed(name: str) -> str:
    """Return the module that a name in the user's files means: `tensorflow.compat.v1.train` for `tensorflow.train`."""
    words = name.split(".")
    if words[0] == "keras":
        words.insert(0, "tensorflow")
    if words[0] != "tensorflow":
        return name
    if words[1:3] == ["python", "keras"]:
        return ".".join([PYTHON_KERAS, *words[3:]])
    if words[1:2] and words[1] in AS_THEY_ARE:
        return name
    if words[1:4] == ["keras", "backend", "tensorflow_backend"]:  # of Keras beside TensorFlow
        del words[3]
    return ".".join([V1, *words[1:]])


class Old(ast.NodeTransformer):
    """Change imports of TensorFlow and Keras to the modules of TensorFlow 1."""

    def visit_Import(self, node: ast.Import) -> list[ast.stmt]:
        found: list[ast.stmt] = []
        for alias in node.names:
            top = alias.name.partition(".")[0]
            if top not in LED:
                found.append(ast.Import([alias]))
                continue
            found.append(_switch())
            if alias.asname or alias.name == top:
                found.append(ast.Import([ast.alias(renamed(alias.name), alias.asname or top)]))
            else:  # `import tensorflow.train` makes the name `tensorflow`
                whole = ast.Call(ast.Name(IMPORT, ast.Load()), [ast.Constant(alias.name)], [])
                found.append(ast.Assign([ast.Name(top, ast.Store())], whole))
        return [ast.fix_missing_locations(ast.copy_location(each, node)) for each in found]

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.stmt | list[ast.stmt]:
        if node.level or (node.module or "").partition(".")[0] not in LED:
            return node
        switch = ast.fix_missing_locations(ast.copy_location(_switch(), node))
        return [switch, ast.copy_location(ast.ImportFrom(renamed(node.module or ""), node.names, 0), node)]

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id != "__import__":
            return node
        return ast.copy_location(ast.Name(IMPORT, node.ctx), node)


def _switch() -> ast.stmt:
    return ast.Expr(ast.Call(ast.Name(NAME, ast.Load()), [], []))


class UsersLoader(SourceFileLoader):
    """Load a file of the user's with TensorFlow 1's names."""

    def path_stats(self, path: str) -> dict:
        raise OSError("never from a cache, which has the file as it is written")

    def source_to_code(self, data, path, *, _optimization=-1):  # type: ignore[no-untyped-def, override]
        tree = data if isinstance(data, ast.AST) else ast.parse(data, path)
        return compile(Old().visit(tree), path, "exec", dont_inherit=True, optimize=_optimization)


class UsersFinder(MetaPathFinder):
    """Find the user's modules: below the folder where the program was started, and in the program's package."""

    def __init__(self, folder: Path, package: str) -> None:
        self.folder, self.package = folder, package

    def find_spec(self, fullname, path=None, target=None) -> ModuleSpec | None:  # type: ignore[no-untyped-def]
        if fullname.partition(".")[0] in LED:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if not (spec and type(spec.loader) is SourceFileLoader):
            return None  # leave it to other finders: setuptools has a `distutils` of its own
        of_package = self.package and fullname.partition(".")[0] == self.package
        if not (of_package or self.has(Path(spec.origin or ""))):
            return None
        spec.loader = UsersLoader(fullname, str(spec.origin))
        return spec

    def is_users(self, module: dict[str, Any]) -> bool:
        """Return whether a module, by its attributes, is the user's. `python -c` has no file."""
        if isinstance(getattr(module.get("__spec__"), "loader", None), UsersLoader):
            return True
        file = module.get("__file__")
        return module.get("__name__") in MAINS and (not file or self.has(Path(file).absolute()))

    def has(self, file: Path) -> bool:
        below = file.parts[len(self.folder.parts) :] if file.is_relative_to(self.folder) else ()
        return bool(below) and not {"site-packages", "dist-packages"} & set(below)


class Attributes(MetaPathFinder):
    """Find modules below compat.v1 by the names that TensorFlow 1 had for them."""

    def find_spec(self, fullname, path=None, target=None) -> ModuleSpec | None:  # type: ignore[no-untyped-def]
        if not fullname.startswith(f"{V1}."):
            return None
        if f"{fullname}.".startswith(f"{PYTHON_KERAS}."):
            found = _python_keras(fullname)
        else:
            parent, _, last = fullname.rpartition(".")
            try:
                found = _whole(getattr(sys.modules[parent], last))
            except (AttributeError, ImportError, KeyError):  # Keras 3 raises it in place of AttributeError
                found = None
            if not isinstance(found, types.ModuleType):
                found = _of_keras(fullname)
        return ModuleSpec(fullname, FoundModule(found)) if found else None


class FoundModule(Loader):
    """Load an existing module under one more name."""

    def __init__(self, module: types.ModuleType) -> None:
        self.module = module

    def create_module(self, spec: ModuleSpec) -> None:
        """Let Python make a module, which nobody uses. Otherwise Python would write attributes into `self.module`."""

    def exec_module(self, module: types.ModuleType) -> None:
        sys.modules[module.__name__] = self.module


class Both(types.ModuleType):
    """Join modules into one. A name is that of the first module that has it.

    For Keras, these are the module of its public names and that of its sources.
    """

    def __init__(self, name: str, modules: list[types.ModuleType]) -> None:
        super().__init__(name)
        self.modules = modules
        self.__path__: list[str] = []
        self.__all__ = [each for each in dir(modules[0]) if not each.startswith("_")]

    python: types.ModuleType
    keras: types.ModuleType

    def __getattr__(self, name: str) -> Any:
        for module in vars(self).get("modules", ()):
            if hasattr(module, name):
                return getattr(module, name)
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")


def _is_lazy(module: object) -> bool:
    return isinstance(module, types.ModuleType) and "LazyLoader" in type(module).__name__


def _whole(module: Any) -> Any:
    """Return the module itself for a stand-in that TensorFlow loads at its first use."""
    if not _is_lazy(module):
        return module
    dir(module)
    return sys.modules.get(module.__name__, module)


def _python_keras(fullname: str) -> types.ModuleType | None:
    keras, below = importlib.import_module(f"{V1}.keras"), fullname[len(PYTHON_KERAS) :]
    if "._tf_keras" in keras.__name__:  # Keras 3
        return _imported(f"tensorflow.python.keras{below}")
    sources = f"{keras.__name__.partition('.')[0]}.src"  # of `keras`, or of `tf_keras`
    found = [module for place in (keras.__name__, sources) if (module := _imported(f"{place}{below}"))]
    return Both(fullname, found) if found else None


def _of_keras(fullname: str) -> types.ModuleType | None:
    """Find a module of Keras's sources that older versions had among the public names: `keras.engine`."""
    if not fullname.startswith(f"{V1}.keras."):
        return None
    package, below = sys.modules[f"{V1}.keras"].__name__.partition(".")[0], fullname[len(f"{V1}.keras") :]
    return _imported(f"{package}.src{below}") or _imported(f"{package}{below}")


def _imported(name: str) -> types.ModuleType | None:
    with contextlib.suppress(ImportError):
        return importlib.import_module(name)
    return None


def led(
    name: str, globals: Any = None, locals: Any = None, fromlist: Sequence[str] | None = (), level: int = 0
) -> types.ModuleType:
    """Import for a file of the user's, as Python's `__import__` does."""
    top = name.partition(".")[0]
    if level or top not in LED:
        return _import(name, globals, locals, fromlist or (), level)
    tensorflow_1()
    module = importlib.import_module(renamed(name))
    for each in fromlist or ():
        if each != "*" and not hasattr(module, each):
            _imported(f"{renamed(name)}.{each}")
    if fromlist:
        return module
    whole = importlib.import_module(renamed(top))
    if not renamed(name).startswith(PYTHON_KERAS):
        return whole
    python = Both("tensorflow.python", [importlib.import_module("tensorflow.python")])
    python.keras = importlib.import_module(PYTHON_KERAS)  # TensorFlow itself has another one there
    found = Both(V1, [whole])
    found.python = python
    return found


_import, _import_module = builtins.__import__, importlib.import_module


def begin(folder: Path, package: str) -> UsersFinder:
    """Give the user's files TensorFlow 1, in this process and in Pythons that it starts."""
    os.environ[FOLDER], os.environ[PACKAGE] = str(folder), package
    path = [entry for entry in os.environ.get("PYTHONPATH", HERE).split(os.pathsep) if entry != HERE]
    os.environ["PYTHONPATH"] = os.pathsep.join([HERE, *path])
    if "TF_USE_LEGACY_KERAS" not in os.environ and PathFinder.find_spec("tf_keras"):
        os.environ["TF_USE_LEGACY_KERAS"] = "1"  # Keras 3, of TensorFlow 2.16 and newer, has no names of version 1
    finder = UsersFinder(folder, package)
    sys.meta_path[:0] = [finder, Attributes()]
    setattr(builtins, NAME, tensorflow_1)
    setattr(builtins, IMPORT, led)

    def import_module(name: str, package: str | None = None) -> types.ModuleType:
        if name.partition(".")[0] in LED and finder.is_users(sys._getframe(1).f_globals):
            return led(name, fromlist=("*",))
        return _import_module(name, package)

    importlib.import_module = import_module
    return finder


def begin_again() -> None:
    """Do the same as `begin` in a Python that the program has started. Redirect the imports of the user's program."""
    finder = begin(Path(os.environ[FOLDER]), os.environ[PACKAGE])

    def import_for(
        name: str, globals: Any = None, locals: Any = None, fromlist: Sequence[str] | None = (), level: int = 0
    ) -> types.ModuleType:
        if name.partition(".")[0] in LED:
            asks = globals or sys._getframe(1).f_globals
            if asks.get("__name__") in MAINS and finder.is_users(asks):
                return led(name, globals, locals, fromlist, level)
        return _import(name, globals, locals, fromlist or (), level)

    builtins.__import__ = import_for  # type: ignore[assignment]
