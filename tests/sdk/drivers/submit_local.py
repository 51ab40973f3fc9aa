"""Run examples/submit.py in the repository's folder, as a user does; standard input: its arguments, as JSON."""

import json
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]

arguments = json.load(sys.stdin)
os.chdir(ROOT)
os.execv(sys.executable, [sys.executable, "-u", "examples/submit.py", *arguments])
