"""The prepare step runs by path, with its folder in front: its modules import one another by their names alone."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[3] / "entrypoint" / "programs" / "prepare"))
