"""How long an epoch takes, and what a training costs, on 1, 2, 4 ... hosts, from what one host was measured to reach.

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
class Training:
    """What is known of one host, and of the training; `network` in bytes per second, `price` of an instance's hour."""

    images_per_second: float
    batch_size: int
    model_bytes: float
    network: float
    price: float
    images: int
    epochs: int = 1
    overlap: float = 0.0
    fixed_seconds: float = 0.0

    def on(self, hosts):
        """What to expect of so many hosts."""
        compute = self.batch_size / self.images_per_second
        exchange = 2 * (hosts - 1) / hosts * self.model_bytes / self.network
        step = compute + (1 - self.overlap) * exchange
        epoch = step * self.images / (hosts * self.batch_size)
        job = self.fixed_seconds + self.epochs * epoch
        return Expected(
            hosts=hosts,
            epoch_seconds=epoch,
            images_per_second=self.images / epoch,
            efficiency=compute / step,
            hours=job / 3600,
            cost=job / 3600 * hosts * self.price,
        )


@dataclass(frozen=True, kw_only=True)
class Expected:
    hosts: int
    epoch_seconds: float
    images_per_second: float
    efficiency: float  # of a host among the others, compared with alone, while it trains
    hours: float  # of the job
    cost: float  # of all hosts


def table(rows):
    yield "hosts  s per epoch  images/s  efficiency   hours       cost"
    for row in rows:
        yield (
            f"{row.hosts:>5}  {row.epoch_seconds:11.1f}  {row.images_per_second:8.0f}  {row.efficiency:10.1%}  "
            f"{row.hours:6.2f}  {row.cost:9,.2f}"
        )


def main(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )

    def add(name, kind, help, **more):
        parser.add_argument(
            f"--{name}", type=kind, help=help + ("" if "required" in more else " (%(default)s)"), **more
        )

    add("images-per-second", _more_than(0), "of one host, measured: the table at the end of train.py", required=True)
    add("batch-size", _more_than(0), "images of a step on one host, all of its ranks together", required=True)
    add("price", _more_than(0), "of one instance for an hour", required=True)
    add("network-gbit", _more_than(0), "of a host: better what you measured than what is promised", required=True)
    add("model-bytes", _more_than(0), "of all gradients; half with 16 bits", default=102_200_000)
    add("images", _more_than(0), "of an epoch", default=1_281_167)
    add("epochs", _more_than(0), "of the training", default=90)
    add("overlap", _share, "of the exchange that computing hides, 0 to 1", default=0.0)
    add("fixed-seconds", _at_least_0, "of a job before and after its epochs", default=0.0)
    parser.add_argument("--hosts", type=_host, nargs="+", default=[1, 2, 4, 8], help="how many (1 2 4 8)")
    args = parser.parse_args(argv)
    training = Training(
        images_per_second=args.images_per_second,
        batch_size=args.batch_size,
        model_bytes=args.model_bytes,
        network=args.network_gbit * 1e9 / 8,
        price=args.price,
        images=args.images,
        epochs=args.epochs,
        overlap=args.overlap,
        fixed_seconds=args.fixed_seconds,
    )
    for line in table(map(training.on, args.hosts)):
        print(line)
    return 0


def _more_than(least):
    def number(text):
        value = float(text)
        if not least < value < float("inf"):
            raise argparse.ArgumentTypeError(f"{text} is not more than {least}")
        return value

    return number


def _at_least_0(text):
    value = float(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not 0 or more")
    return value


def _share(text):
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not a share, 0 to 1")
    return value


def _host(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number of hosts")
    return value


if __name__ == "__main__":
    sys.exit(main())
