"""Run `entrypoint replay`: print what every host of a job knew and decided."""

import argparse
from collections.abc import Mapping

EPILOG = """\
examples; exit code 1 if this version would decide otherwise:
  entrypoint replay output.tar.gz       # of a job on SageMaker, from S3
  entrypoint replay out/train-ps-20260101-120000 --host algo-1
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("bundle", metavar="BUNDLE", help="what a job left: its output folder, output.tar.gz, or s3://.../output.tar.gz")
    add("--host", metavar="NAME", help="this host alone")


def run(args: argparse.Namespace, environment: Mapping[str, str]) -> int:
    from entrypoint.observe.replay.timeline import replay
    from entrypoint.record.find import find

    return replay(find(args.bundle), args.host)
