"""Run the prepare step by path, with its folder in front: its modules import one another by their plain names."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[3] / "entrypoint" / "programs" / "prepare"))
