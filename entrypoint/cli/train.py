"""Run `entrypoint train`, which is the console script `train` under another name."""

import argparse
from collections.abc import Mapping

EPILOG = """\
example, of a host whose folder is another than /opt/ml:
  SAGEMAKER_BASE_DIR=ml entrypoint train
"""


def run(args: argparse.Namespace, environment: Mapping[str, str]) -> int:
    from entrypoint.train import train

    train()
    return 0  # not reached: train ends the process
