"""Print a line, and sleep."""

import time

print("asleep", flush=True)
time.sleep(600)
