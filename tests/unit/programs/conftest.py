"""Put the folder of the prepare step first on sys.path: its modules import one another by plain names."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[3] / "entrypoint" / "programs" / "prepare"))
