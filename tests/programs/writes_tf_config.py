"""Writes down TF_CONFIG."""
import os

with open(os.path.join(os.environ["SM_OUTPUT_DATA_DIR"], f"tf_config-{os.getpid()}.json"), "w") as file:
    file.write(os.environ.get("TF_CONFIG", "null"))
