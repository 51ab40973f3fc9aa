"""Run speed.py by plain Python and by `entrypoint local`, and read the monitor's record of the GPU.

Usage: speeds.py FOLDER -- ENTRYPOINT...    (a new folder for the job's output, and the command `entrypoint`)
"""

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path

LEAST = 0.95  # of the images per second by plain Python: what is less is no noise of a GPU that nobody shares
folder, program = Path(sys.argv[1], "job"), Path(__file__).with_name("speed.py")


def speed(name, command):
    """Return the images per second of a run."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(done.stdout, flush=True)
    found = re.search(r"speed (\S+) (\(\S+\)) images/s", done.stdout)
    if done.returncode or not found:
        raise SystemExit(f"{name}: exit code {done.returncode}, {'a' if found else 'no'} speed")
    print(f"of {name}: {found[1]} {found[2]} images/s", flush=True)
    return float(found[1])


plain = speed("plain Python", [sys.executable, program])
ours = speed("entrypoint local", [*sys.argv[3:], "local", program, "--hosts", "1", "--output", folder])
print(f"of the two: ratio {ours / plain:.3f}", flush=True)
with gzip.open(folder / "algo-1/ml/output/data/record/algo-1.jsonl.gz", "rt") as lines:
    samples = [line[3] for line in map(json.loads, lines) if line[0] == "sample"]
busy, used, _, watts, *_ = (max(column) for column in zip(*(each["gpus"][0] for each in samples), strict=True))
print(f"of the record: at most {100 * busy:.0f} % busy, {used / 1e9:.1f} GB, {watts:.0f} W", flush=True)
raise SystemExit(ours < LEAST * plain)
