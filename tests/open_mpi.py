"""Find this machine's Open MPI, for tests that name its daemon: `prted` from version 5 on."""

import os

from entrypoint.base.errors import ConfigError
from entrypoint.launcher.job.open_mpi import DAEMONS, ORTE, major_version

try:
    MAJOR = major_version(os.environ)
except ConfigError:  # another MPI, which tests of MPI cannot use
    MAJOR = ORTE
DAEMON = DAEMONS[MAJOR]
MPIRUN = {"orted": "mpirun", "prted": "prterun"}[DAEMON]  # the name of its process
