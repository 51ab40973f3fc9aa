"""Whole jobs under random faults, from a seed, each judged by rules that know nothing of the launcher's own code.

draw (a Case) -> run (Observed: what happened and what was seen) -> oracle (what was not as it has to be) -> shrink ->
report. What tests/outcomes has for fixed cases is used here, too.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests"))  # outcomes: the watcher of processes, and what was left behind
