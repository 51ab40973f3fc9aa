"""Run as process 1 without a launcher: print facts, then run for minutes and ignore signals.

--leaves HOST: this host ends after ten seconds, with --code. It prints each second how long it has run; after
SIGTERM, how long ago that came.
"""

import argparse
import signal
import time

from facts import hosts, limits, resolved, tell

begun = time.monotonic()
parser = argparse.ArgumentParser()
parser.add_argument("--leaves", default="")
parser.add_argument("--code", type=int, default=0)
args = parser.parse_args()
terminated: list[float] = []
signal.signal(signal.SIGTERM, lambda *_: terminated.append(time.monotonic()))

me, others = hosts()
tell("bare-limits", limits())  # our launcher raises some
tell("bare-names-s", {other: resolved(other, within=120) for other in others})
# Longer than the 120 s between SIGTERM and SIGKILL, which SageMaker may send when a peer leaves.
lives_s = 240 if args.leaves else 500
while (lived := time.monotonic() - begun) < lives_s:
    print(f"accept-alive {lived:.0f} s", flush=True)
    if terminated:
        print(f"accept-since-sigterm {time.monotonic() - terminated[0]:.1f}", flush=True)
    if me == args.leaves and lived > 10:
        print("accept-leaves with", args.code, flush=True)
        raise SystemExit(args.code)
    time.sleep(1)
