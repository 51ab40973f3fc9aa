"""Train without a framework: sleep for some seconds, and raise when the benchmark asks for it.

With `--saves yes`, it saves for a second on SIGTERM and ends, like a script with checkpoints.
"""

from marks import ends, mark

mark("first")
import argparse  # noqa: E402
import os  # noqa: E402
import signal  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402

parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float)
parser.add_argument("--saves", default="no")
arguments, _ = parser.parse_known_args()


def save(*_):
    mark("heard")
    time.sleep(1)
    mark("saved")
    sys.exit(0)


if arguments.saves == "yes":
    signal.signal(signal.SIGTERM, save)
mark("trains")
until = time.monotonic() + arguments.seconds
while time.monotonic() < until:
    if os.path.exists("/bench/raise"):  # noqa: PTH110
        mark("fails")
        raise ValueError("the loss is not a number")
    time.sleep(0.005)
ends()
