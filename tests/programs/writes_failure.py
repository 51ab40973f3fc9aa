"""Write its own failure file and fail."""

import os
import sys
from pathlib import Path

with open(Path(os.environ["SM_OUTPUT_DIR"], "failure"), "w") as file:
    file.write("my own words")
sys.exit(4)
