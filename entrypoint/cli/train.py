"""Run `entrypoint train`, which is the console script `train` under another name."""

import argparse
from collections.abc import Mapping

from entrypoint.train import train

EPILOG = """\
example, of a host whose folder is another than /opt/ml:
  SAGEMAKER_BASE_DIR=ml entrypoint train
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add none."""


def run(args: argparse.Namespace, environment: Mapping[str, str]) -> int:
    train()
    return 0  # not reached: train ends the process
