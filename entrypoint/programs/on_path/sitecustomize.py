"""Start the modules of this folder that a Python of the training needs, and then run the next `sitecustomize`.

Python imports a module of this name when it starts. This folder stands in PYTHONPATH behind the user's code (a
`sitecustomize` there comes first, and then nothing is changed) and before Debian's Python, which has a `sitecustomize`,
too. A program with ENTRYPOINT_TF1=shim has put it first. A Python that imports no framework loses a millisecond.
"""

import os
import sys
from importlib.machinery import PathFinder

FRAMEWORKS = ("keras", "tf_keras", "tensorflow", "horovod")


class First:
    """Wait for the first module of a framework, and change modules from then on. It finds no module itself."""

    @staticmethod
    def find_spec(name, path=None, target=None):  # type: ignore[no-untyped-def]
        if name not in FRAMEWORKS:
            return None
        try:
            sys.meta_path.remove(First)  # type: ignore[arg-type]
            import entrypoint_looks_on

            return entrypoint_looks_on.begin().find_spec(name, path, target)
        except Exception:  # whatever it is: the script runs as it would without us
            return None


if sys.version_info >= (3, 10) and "TF1_SHIM_FOLDER" in os.environ:  # no older Python of the image has TensorFlow
    import entrypoint_tf1

    entrypoint_tf1.begin_again()
if os.environ.get("ENTRYPOINT_PROCESS"):  # a process of the job
    sys.meta_path.insert(0, First)  # type: ignore[arg-type]

_HERE = os.path.dirname(__file__)  # noqa: PTH120 - pathlib takes longer to import than all of this
_spec = PathFinder.find_spec("sitecustomize", [entry for entry in sys.path if entry != _HERE])
if _spec and _spec.loader:
    from importlib.util import module_from_spec

    sys.modules["sitecustomize"] = module_from_spec(_spec)
    _spec.loader.exec_module(sys.modules["sitecustomize"])
