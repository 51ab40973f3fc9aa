"""Write TF_CONFIG to a file."""

import os
from pathlib import Path

with open(Path(os.environ["SM_OUTPUT_DATA_DIR"], f"tf_config-{os.getpid()}.json"), "w") as file:
    file.write(os.environ.get("TF_CONFIG", "null"))
