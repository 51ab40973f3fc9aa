"""Fail in the first attempts, then succeed. FAILS lists host:signal or host:exit code for each attempt, with commas."""

import os
import signal
import sys
import time

attempt = int(os.environ["ENTRYPOINT_RESTART_COUNT"])
me = os.environ["SM_CURRENT_HOST"]
print(f"attempt {attempt} of {me}", flush=True)
plans = [entry.split(":") for entry in sys.argv[sys.argv.index("--fails") + 1].split(",")]
time.sleep(0.5)
if attempt < len(plans) and plans[attempt][0] == me:
    how = plans[attempt][1]
    if how.isdigit():
        sys.exit(int(how))
    os.kill(os.getpid(), signal.Signals[how])
if attempt < len(plans):
    time.sleep(60)  # the others wait for the one that failed, as in a collective
print(f"attempt {attempt} of {me} is over", flush=True)
