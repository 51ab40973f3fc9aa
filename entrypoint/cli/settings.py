"""Run `entrypoint settings`: print all settings with their defaults."""

import argparse
from collections.abc import Mapping

from entrypoint.launcher.job.settings import settings_table

EPILOG = """\
examples:
  entrypoint settings
  entrypoint settings | grep TIMEOUT
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add none."""


def run(args: argparse.Namespace, environment: Mapping[str, str]) -> int:
    print(settings_table())
    return 0
