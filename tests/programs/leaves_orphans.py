"""End well, and leave processes that hold its stdout: one in its group, one in its own session."""

import subprocess
import sys

for session in (False, True):
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=session)
print("the script ends", flush=True)
