"""Runs speed.py by plain Python and by `entrypoint local`, whose monitor looks every second or every 0.1 s.

Usage: speeds.py FOLDER -- ENTRYPOINT...    (the command `entrypoint`, and a new folder for the jobs' output)
"""

import re
import subprocess
import sys
from pathlib import Path

LEAST = 0.95  # of the images per second without the launcher: what is less is no noise of a GPU that nobody shares
folder, program = Path(sys.argv[1]), Path(__file__).with_name("speed.py")
local = [*sys.argv[3:], "local", str(program), "--hosts", "1"]
ways = {
    "plain": [sys.executable, str(program)],
    "1 s": [*local, "--output", f"{folder}/1"],
    "0.1 s": [*local, "--output", f"{folder}/0.1", "--env", "ENTRYPOINT_MONITOR_INTERVAL=0.1"],
}
rates = {}
for name, command in ways.items():
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(done.stdout, flush=True)
    found = re.search(r"speed (\S+) (\(\S+\)) images/s", done.stdout)
    if done.returncode or not found:
        raise SystemExit(f"{name}: exit code {done.returncode}, and {'no ' * (not found)}speed")
    rates[name] = float(found[1])
    print(f"of {name}: {found[1]} {found[2]} images/s, {rates[name] / rates['plain']:.3f} of plain", flush=True)
raise SystemExit(min(rates.values()) < LEAST * rates["plain"])
