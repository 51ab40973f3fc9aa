"""Run commands of Docker, and repeat them if Docker or runc failed for a reason outside of this project."""

import re
import subprocess
import time
from typing import Any

# What they print, and the reason. Each of them leaves it to its caller to try again.
HICCUPS = {
    "unable to freeze": "runc could not freeze a cgroup whose tasks keep it busy (version 1 of cgroups)",
    "connection reset by peer": "the connection to a registry or to the daemon was reset",
    "TLS handshake timeout": "a registry was slow to answer",
    "net/http: request canceled while waiting for connection": "a registry was slow to answer",
    "unexpected EOF": "the connection to a registry or to the daemon ended early",
}
TRIES = 8
PAUSE_SECONDS = 0.5  # before the second try; twice as long before each one after it
SAID: list[str] = []  # a line for each hiccup; conftest.py prints them when all tests have run


def run(command: tuple[str, ...], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the command by subprocess.run with its output captured as text. Repeat it after a hiccup, up to 8 times."""
    for attempt in range(TRIES):
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, **options)
        if done.returncode == 0 or not (why := hiccup(done.stderr)) or attempt == TRIES - 1:
            break
        SAID.append(f"tried again: {' '.join(command[:6])}: {why}")
        time.sleep(PAUSE_SECONDS * 2**attempt)
    return done


def hiccup(stderr: str) -> str:
    """Return the reason to repeat the command; "" if there is none."""
    return next((why for words, why in HICCUPS.items() if re.search(re.escape(words), stderr, re.I)), "")
