"""Take a step a second and save each, until 30 steps have been taken; resume at the step that was saved last."""

import os
import time
from pathlib import Path

saved = Path("/opt/ml/checkpoints", f"step-{os.environ['SM_CURRENT_HOST']}")
step = int(saved.read_text()) if saved.exists() else 0
print("begins at step", step, flush=True)
while step < 30:
    time.sleep(1)
    step += 1
    whole = saved.with_suffix(".new")
    whole.write_text(str(step))
    whole.replace(saved)
    print("step", step, "is saved", flush=True)
print("ends at step", step, flush=True)
