"""Run whole jobs under random faults, from a seed, and judge each by rules that share no code with the launcher.

draw (a Case) -> run (Observed: what happened and what was seen) -> oracle (which rules were violated) -> report. What
tests/outcomes has for fixed cases is used here, too.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests"))  # outcomes: the watcher of processes, and what was left behind
