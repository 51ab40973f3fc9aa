"""Provide TensorFlow and NumPy, and import each at the first use of something in it.

So a script may set TensorFlow's variables, and choose its GPU, after it has imported this package.
"""

import importlib
import types
from typing import TYPE_CHECKING, Any


class _Lazy(types.ModuleType):
    """Represent the module of the same name."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(importlib.import_module(self.__name__), name)
        if self.__name__ == "numpy":  # of which each record uses several functions
            setattr(self, name, found)
        return found


if TYPE_CHECKING:
    import numpy as np
    import tensorflow as tf
else:
    np, tf = _Lazy("numpy"), _Lazy("tensorflow")

__all__ = ["np", "tf"]
