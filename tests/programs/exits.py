"""Exit with --code on one host (--on), after a moment, and with --others on the others."""

import argparse
import os
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("--code", type=int)
parser.add_argument("--on", default=os.environ["SM_CURRENT_HOST"])
args = parser.parse_args()
if args.on == os.environ["SM_CURRENT_HOST"]:
    print("about to exit", flush=True)
    sys.exit(args.code)
time.sleep(600)
