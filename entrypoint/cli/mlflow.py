"""Run `entrypoint mlflow`: write the records of an ended job as a run of MLflow."""

import argparse
from collections.abc import Mapping

from entrypoint.cli.arguments import PLACE

EPILOG = """\
examples:
  MLFLOW_TRACKING_URI=http://127.0.0.1:5000 entrypoint mlflow out/train-mpi
  MLFLOW_TRACKING_URI=file:///runs entrypoint mlflow s3://bucket/output.tar.gz
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("place", metavar="PLACE", help=PLACE)


def run(args: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """Write the run; return 0, or 1 if nothing was written.

    Raise ConfigError if there are no records, or MLflow cannot be used.
    """
    from entrypoint.observe.export.mlflow_run import MlflowRun
    from entrypoint.observe.export.points import Points
    from entrypoint.record.find import find
    from entrypoint.record.read import lines_of

    records = find(args.place)
    run = MlflowRun()
    count = sum(run.add(Points(host), lines_of(record)) for host, record in sorted(records.items()))
    run.close()
    print(f"{count} metrics in run {run.id}" if run.id else "nothing written: the records do not say what the job was")
    return 0 if run.id else 1
