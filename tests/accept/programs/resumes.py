"""Take --steps steps, one a second, and save each; resume at the step that was saved last."""

import argparse
import os
import time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, required=True)

saved = Path("/opt/ml/checkpoints", f"step-{os.environ['SM_CURRENT_HOST']}")
step = int(saved.read_text()) if saved.exists() else 0
last = step + parser.parse_args().steps
print("begins at step", step, flush=True)
while step < last:
    time.sleep(1)
    step += 1
    whole = saved.with_suffix(".new")
    whole.write_text(str(step))
    whole.replace(saved)
    print("step", step, "is saved", flush=True)
print("ends at step", step, flush=True)
