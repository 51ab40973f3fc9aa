"""Run `entrypoint metrics`: print metric definitions."""

import argparse
from collections.abc import Mapping

from entrypoint.base.errors import ConfigError

EPILOG = """\
examples:
  entrypoint metrics                     # of the names that Keras has
  entrypoint metrics out/train-mpi-20260101-120000 --sdk v3    # that it printed
  entrypoint metrics --name mAP --name images_per_second --sdk json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("place", nargs="?", metavar="PLACE", help="a job's output, as for `report`: define the metrics that it printed")
    add("--name", action="append", default=[], metavar="NAME", help="of this metric; may be repeated")
    add("--sdk", choices=["v2", "v3", "json"], default="v2", help="for which SageMaker SDK, or as JSON; default: v2")


def run(args: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """Print definitions of the metrics in --name and in a job's records, else of the usual ones; return 0."""
    from entrypoint.observe.export.definitions import USUAL, definitions, metrics_in
    from entrypoint.record.find import find
    from entrypoint.record.read import lines_of

    names = args.name
    if args.place:
        printed = metrics_in(line for record in find(args.place).values() for line in lines_of(record))
        names = names + [name for name in printed if name not in names]
        if not names:
            raise ConfigError(
                f"the records of {args.place} hold no metrics; wanted --name, or a script that prints some"
            )
    print(definitions(names or USUAL, args.sdk))
    return 0
