"""Run `entrypoint settings`: print all settings with their defaults."""

import argparse
from collections.abc import Mapping
from pathlib import Path

EPILOG = """\
examples:
  entrypoint settings
  entrypoint settings | grep TIMEOUT
"""


def run(args: argparse.Namespace, environment: Mapping[str, str]) -> int:
    from entrypoint.launcher.job import settings

    print(Path(settings.__file__).with_suffix(".md").read_text("utf-8"), end="")
    return 0
