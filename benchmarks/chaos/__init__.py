"""Run whole jobs with random faults from a seed, and judge each by rules that share no code with the launcher.

draw (a Case) -> run (Observed: events and output) -> oracle (violated rules) -> report. It shares code with
tests/outcomes, which has fixed cases.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests"))  # outcomes: the watcher of processes, and what was left behind
