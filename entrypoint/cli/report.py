"""Run `entrypoint report`: make a job's report again from its records, wherever they are."""

import argparse
import math
from pathlib import Path

from entrypoint.base.errors import ConfigError
from entrypoint.launcher.job.rules import parse_rules
from entrypoint.observe.report.make import make
from entrypoint.record.find import find


def report(args: argparse.Namespace) -> int:
    """Make the report and return 0; raise ConfigError if there are no records or the report cannot be written."""
    price = None
    if args.price is not None:
        try:
            price = float(args.price)
        except ValueError:
            price = math.nan
        if not 0 <= price < 1e6:
            raise ConfigError(f"--price is {args.price!r}; wanted USD of a host for an hour, such as 3.06")
    try:
        rules = dict(parse_rules(args.rules))
    except ValueError as wanted:
        raise ConfigError(f"--rules is {args.rules[:200]!r}; wanted {wanted}") from None
    records = find(args.place)
    output: Path = args.output / "report.html" if args.output.is_dir() else args.output
    try:
        lines = make(records, output, price, rules)
    except OSError as error:
        raise ConfigError(f"--output {output} cannot be written: {error}") from None
    for line in lines or ["No problems found"]:
        print(line)
    print(f"report   {output}")
    return 0
