"""Print a step every tenth of a second, `--steps` of them."""

import argparse
import time

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
for step in range(parser.parse_args().steps):
    print(f"step {step};", flush=True)
    time.sleep(0.1)
