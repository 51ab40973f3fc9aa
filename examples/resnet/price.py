"""Estimates an epoch's time and a training's cost on 1, 2, 4 ... hosts, from what one host was measured to reach.

    python price.py --images-per-second 1690 --batch-size 2736 --network-gbit 100 --price 35.894 --epochs 150

A model, not a measurement. It assumes that

* a host computes as fast among others as alone, and its images come as fast (look at "waiting for images");
* gradients are exchanged by a ring of hosts: each sends and receives 2 (N - 1) / N times their bytes in every step, at
  the network's bandwidth, and what goes on within a host is in its images per second already;
* `--overlap` of the exchange happens while the host still computes; the rest of it prolongs the step;
* a job takes `--fixed-seconds` besides, which are paid for: download, start, saving.

Hosts that wait for the slowest of them are in none of it, so you will measure a bit less: docs/resnet.md.
"""

import argparse
import sys
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Expected:
    """The expected time and cost of a job on a number of hosts."""

    hosts: int
    epoch_seconds: float
    images_per_second: float
    efficiency: float  # of a host among the others, compared with alone, while it trains
    hours: float  # of the job
    cost: float  # of all hosts


def expect(hosts, known):
    """Return the expected time and cost on a number of hosts. `known`: the arguments of `parse`."""
    compute = known.batch_size / known.images_per_second
    exchange = 2 * (hosts - 1) / hosts * known.model_bytes / (known.network_gbit * 1e9 / 8)
    step = compute + (1 - known.overlap) * exchange
    epoch = step * known.images / (hosts * known.batch_size)
    hours = (known.fixed_seconds + known.epochs * epoch) / 3600
    return Expected(
        hosts=hosts,
        epoch_seconds=epoch,
        images_per_second=known.images / epoch,
        efficiency=compute / step,
        hours=hours,
        cost=hours * hosts * known.price,
    )


def table(rows):
    yield "hosts  s per epoch  images/s  efficiency   hours       cost"
    for row in rows:
        yield (
            f"{row.hosts:>5}  {row.epoch_seconds:11.1f}  {row.images_per_second:8.0f}  {row.efficiency:10.1%}  "
            f"{row.hours:6.2f}  {row.cost:9,.2f}"
        )


def parse(argv):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )

    def add(name, help, default=None):
        more = {"required": True} if default is None else {"default": default}
        parser.add_argument(f"--{name}", type=float, help=help + (" (%(default)s)" * (default is not None)), **more)

    add("images-per-second", "of one host, measured: the table at the end of train.py")
    add("batch-size", "images of a step on one host, all of its ranks together")
    add("price", "of one instance for an hour")
    add("network-gbit", "of a host: better what you measured than what is promised")
    add("model-bytes", "of all gradients; half with 16 bits", 102_200_000)
    add("images", "of an epoch", 1_281_167)
    add("epochs", "of the training", 90)
    add("overlap", "of the exchange that computing hides, 0 to 1", 0)
    add("fixed-seconds", "of a job before and after its epochs", 0)
    parser.add_argument("--hosts", type=int, nargs="+", default=[1, 2, 4, 8], help="how many (1 2 4 8)")
    known = parser.parse_args(argv)
    if not 0 <= known.overlap <= 1:
        parser.error(f"--overlap is {known.overlap:g}; wanted a share, 0 to 1")
    for name, value in {**vars(known), "hosts": min(known.hosts)}.items():
        if not (0 < value < float("inf") or (value == 0 and name in ("overlap", "fixed_seconds"))):
            parser.error(f"--{name.replace('_', '-')} is {value:g}; wanted more than 0")
    return known


def main(argv=None):
    known = parse(argv)
    for line in table(expect(hosts, known) for hosts in known.hosts):
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
