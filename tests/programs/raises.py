"""Raise an exception on the host --on; sleep on the others."""

import os
import sys
import time

if sys.argv[sys.argv.index("--on") + 1] == os.environ["SM_CURRENT_HOST"]:
    print("epoch 1", flush=True)
    raise ValueError("the loss of this host is too large")
time.sleep(600)
