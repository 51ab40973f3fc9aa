"""Import a package that only some users have installed, or name the extra of the wheel that brings it."""

import importlib
from typing import Any

from entrypoint.base.errors import ConfigError

WHEEL = "sagemaker-tf-entrypoint"


def imported(module: str, extra: str, what: str) -> Any:
    """Import a module by its full name. If it is missing, raise ConfigError with the extra; `what` begins its text."""
    try:
        return importlib.import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise ConfigError(f"{what} takes {package}, which is not installed: pip install '{WHEEL}[{extra}]'") from None
