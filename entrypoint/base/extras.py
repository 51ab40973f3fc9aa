"""Import what only a part of our users has installed, or say which extra of the wheel brings it."""

import importlib
from typing import Any

from entrypoint.base.errors import ConfigError

WHEEL = "sagemaker-tf-entrypoint"


def imported(module: str, extra: str, what: str) -> Any:
    """Import a module by its whole name; ConfigError that names the extra if it is missing. `what` begins the error."""
    try:
        return importlib.import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise ConfigError(f"{what} takes {package}, which is not installed: pip install '{WHEEL}[{extra}]'") from None
