"""Limit a resource of a host, in processes with this folder on PYTHONPATH.

TEST_FEW: HOST=files:N, the file descriptors of each process, or HOST=group:PATH, a control group for all of them.
"""

import os
import resource

host, _, what = os.environ.get("TEST_FEW", "").partition("=")
if host and os.environ.get("SAGEMAKER_BASE_DIR", "").endswith(f"/{host}/ml"):
    kind, _, value = what.partition(":")
    if kind == "files":
        resource.setrlimit(resource.RLIMIT_NOFILE, (int(value), int(value)))
    else:
        with open(f"{value}/cgroup.procs", "w") as members:
            members.write(str(os.getpid()))
