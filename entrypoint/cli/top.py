"""Run `entrypoint top`: show a job while it runs."""

import argparse
from collections.abc import Mapping

EPILOG = """\
examples:
  entrypoint top     # in a container of the job, or beside `entrypoint local`
  entrypoint top http://localhost:7979     # forwarded to the coordinator's port
  entrypoint top out/train-mpi-20260101-120000 --once
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "where",
        nargs="?",
        default="",
        metavar="WHERE",
        help="http://HOST:PORT of a coordinator, or the output folder of `entrypoint local`; default: the job of this "
        "container, else the newest in out/",
    )
    parser.add_argument("--once", action="store_true", help="print it once, as it is now")


def run(args: argparse.Namespace, environment: Mapping[str, str]) -> int:
    from entrypoint.observe.live.in_terminal import show, source

    return show(source(args.where, environment), args.once)
