"""Name the default folders."""

import os
from pathlib import Path

DEFAULT_BASE = Path("/opt/ml")
DEFAULT_RUN = Path("/run/entrypoint")


def base_folder() -> Path:
    """Return /opt/ml, or the folder in SAGEMAKER_BASE_DIR, as sagemaker-training does."""
    return Path(os.environ.get("SAGEMAKER_BASE_DIR") or DEFAULT_BASE)
