"""Run `entrypoint settings`: print all settings with their defaults."""

import argparse
from collections.abc import Mapping

EPILOG = """\
examples:
  entrypoint settings
  entrypoint settings | grep TIMEOUT
"""


def run(args: argparse.Namespace, environment: Mapping[str, str]) -> int:
    from entrypoint.launcher.job.settings import settings_table

    print(settings_table())
    return 0
