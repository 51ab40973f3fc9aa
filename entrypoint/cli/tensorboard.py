"""Run `entrypoint tensorboard`: write a job's event files."""

import argparse
from collections.abc import Mapping
from pathlib import Path

from entrypoint.cli.arguments import PLACE

_RECORDS = ("*/ml/output/data/record", "output/data/record", "data/record", "record", ".")

EPILOG = """\
examples:
  entrypoint tensorboard s3://bucket/job/output/output.tar.gz --logdir runs/job
  entrypoint tensorboard /opt/ml --live --logdir tensorboard   # in a container
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("place", metavar="PLACE", help=PLACE)
    add("--logdir", type=Path, default=Path("tensorboard"), metavar="DIR", help="default: tensorboard")
    add("--live", action="store_true", help="follow the job while it runs; PLACE is then a folder")


def run(args: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """Write the files, with --live while the job runs, and return 0.

    Raise ConfigError if there are no records, or the package tensorboard is missing.
    """
    from entrypoint.observe.export.event_files import EventFiles
    from entrypoint.observe.export.points import Points, follow
    from entrypoint.record.find import find
    from entrypoint.record.read import lines_of

    files = EventFiles(args.logdir)
    try:
        if args.live:
            folder = Path(args.place)
            count = follow(lambda: [each for part in _RECORDS for each in folder.glob(part)], files.add, lambda: False)
        else:
            count = sum(files.add(Points(host), lines_of(record)) for host, record in find(args.place).items())
    except KeyboardInterrupt:
        return 0
    finally:
        files.close()
    print(f"{count} points in {args.logdir}; to see them: tensorboard --logdir {args.logdir}")
    return 0
