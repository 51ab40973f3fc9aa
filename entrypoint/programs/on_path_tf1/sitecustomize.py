"""Give TensorFlow 1's names to each Python that a program with ENTRYPOINT_TF1=shim starts.

Python imports a module of this name when it starts, since `as_tf1.py` has put this folder first on PYTHONPATH. Then the
next `sitecustomize` runs, as it would without us.
"""

import os
import sys
from importlib.machinery import PathFinder

_HERE = os.path.dirname(__file__)  # noqa: PTH120 - pathlib takes longer to import than all of this
if sys.version_info >= (3, 10) and "TF1_SHIM_FOLDER" in os.environ:  # no older Python of the image has TensorFlow
    import entrypoint_tf1

    entrypoint_tf1.begin_again()
sys.path[:] = [entry for entry in sys.path if entry != _HERE]  # so that the next one does not find this one again

_spec = PathFinder.find_spec("sitecustomize", sys.path)
if _spec and _spec.loader:
    from importlib.util import module_from_spec

    sys.modules["sitecustomize"] = module_from_spec(_spec)
    _spec.loader.exec_module(sys.modules["sitecustomize"])
