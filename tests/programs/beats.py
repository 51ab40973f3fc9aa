"""Print a step every tenth of a second: `--steps` of them, and further ones until the file `--until` exists."""

import argparse
import itertools
import time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--until", type=Path)
args = parser.parse_args()
for step in itertools.count():
    if step >= args.steps and (args.until is None or args.until.exists()):
        break
    print(f"step {step};", flush=True)
    time.sleep(0.1)
