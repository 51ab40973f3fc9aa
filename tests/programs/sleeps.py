"""Says that it is there, and sleeps."""

import time

print("asleep", flush=True)
time.sleep(600)
