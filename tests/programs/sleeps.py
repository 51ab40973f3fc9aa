"""Print that it runs, and sleep."""

import time

print("asleep", flush=True)
time.sleep(600)
