"""Has `entrypoint_looks_on` look on in each Python of the training, then does what another `sitecustomize` would do.

Python imports a module of this name by itself when it starts. The folder stands in PYTHONPATH behind the user's code (a
`sitecustomize` there comes first, and then nobody looks on) and before Debian's Python, which has a `sitecustomize`,
too. A Python that imports no framework pays a millisecond.
"""

import os
import sys
from importlib.machinery import PathFinder

FRAMEWORKS = ("keras", "tf_keras", "tensorflow", "horovod")


class First:
    """Finds nothing by itself; the first module of a framework brings what looks on."""

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


if os.environ.get("ENTRYPOINT_MARKS") and os.environ.get("ENTRYPOINT_PROCESS"):  # a monitor listens
    sys.meta_path.insert(0, First)  # type: ignore[arg-type]

_HERE = os.path.dirname(__file__)  # noqa: PTH120 - pathlib takes longer to import than all of this
_spec = PathFinder.find_spec("sitecustomize", [entry for entry in sys.path if entry != _HERE])
if _spec and _spec.loader:
    from importlib.util import module_from_spec

    sys.modules["sitecustomize"] = module_from_spec(_spec)
    _spec.loader.exec_module(sys.modules["sitecustomize"])
