"""Train on a host of the distribution; on another host, serve until SIGTERM.

--fails outside|inside: raise there. --saves: a server works for another second after the end of training (a file).
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

inside = "OMPI_COMM_WORLD_RANK" in os.environ or "TF_CONFIG" in os.environ
host, shared = os.environ["SM_CURRENT_HOST"], Path(os.environ["TEST_FOLDER"])
told = {key: value for key, value in os.environ.items() if key.startswith(("OMPI_", "TF_CONFIG", "SM_"))}
Path(os.environ["SM_OUTPUT_DATA_DIR"], "told.json").write_text(json.dumps(told))
fails = sys.argv[sys.argv.index("--fails") + 1] if "--fails" in sys.argv else ""


def wait_for(*names: str) -> None:
    while not all((shared / name).exists() for name in names):
        time.sleep(0.05)


def say(text: str) -> None:
    print(text, flush=True)
    (shared / f"{text}-{host}").touch()


if inside:
    say("training")
    wait_for(*(f"serving-{name}" for name in os.environ["SERVERS"].split(",") if name))
    if fails == "inside":
        raise ValueError("the data is not there")
    if fails or "--lasts" in sys.argv:
        time.sleep(600)
    say("trained")
else:
    signal.signal(signal.SIGTERM, lambda *_: (say("stopping"), sys.exit(0)))
    say("serving")
    if fails == "outside":
        raise ValueError("no data to serve")
    if "--saves" in sys.argv:
        wait_for("trained-algo-3", "trained-algo-4")
        time.sleep(1)
        say("saved")
        sys.exit(0)
    time.sleep(600)
