"""Print megabytes, in lines of a hundred bytes. At SIGTERM, save a model and end."""

from marks import ends, mark

mark("first")
import argparse  # noqa: E402
import signal  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402

parser = argparse.ArgumentParser()
parser.add_argument("--megabytes", type=int)
arguments, _ = parser.parse_known_args()


def save(*_):
    mark("heard")
    Path("/opt/ml/model/saved").touch()
    mark("saved")
    sys.exit(0)


signal.signal(signal.SIGTERM, save)
mark("trains")
for number in range(arguments.megabytes * 10_000):
    print(f"{number:08d}" + "." * 91)
sys.stdout.flush()
ends()
