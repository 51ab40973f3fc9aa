"""Ends well, and leaves behind processes that hold its stdout: one in its group, one in a session of its own."""

import subprocess
import sys

for session in (False, True):
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=session)
print("the script ends", flush=True)
