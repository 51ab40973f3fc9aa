"""Find this host's generation of Open MPI: up to version 4, ORTE (`orted`) starts ranks elsewhere, from 5 on PRRTE."""

import os
import re
import subprocess
from collections.abc import Mapping

from entrypoint.base.errors import ConfigError, show
from entrypoint.launcher.job.settings import of_programs

ORTE, PRRTE = 4, 5
DAEMONS = {ORTE: "orted", PRRTE: "prted"}  # by the major version that stands for all versions with the same daemon
# Since Open MPI 5, a rank exits with this code (MPI_ERR_UNKNOWN) when another rank's connection ends; mpirun prints
# why.
LOST_PEER = 14
PATIENCE_SECONDS = 20.0  # seconds for `mpirun --version`, which usually takes some hundredths of a second


def major_version(environment: Mapping[str, str]) -> int:
    """Return ORTE or PRRTE, by the daemon on PATH, else by mpirun. Raise ConfigError for another MPI."""
    import shutil  # here, since it imports all kinds of compression, and only ranks need mpirun

    path = environment.get("PATH", os.defpath)
    there = [major for major, daemon in DAEMONS.items() if shutil.which(daemon, path=path)]
    if len(there) == 1:
        return there[0]
    mpirun = shutil.which("mpirun", path=path)
    # If there is none, its start fails with its name; or this host only plans.
    return _asked(mpirun, environment) if mpirun else ORTE


def _asked(mpirun: str, environment: Mapping[str, str]) -> int:
    try:
        text = subprocess.run(
            [mpirun, "--version"], env=of_programs(environment), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, timeout=PATIENCE_SECONDS,
        ).stdout.decode(errors="replace")  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        text = str(error)
    if not (found := re.search(r"\(Open MPI\) (\d+)\.", text)):
        raise ConfigError(
            f"{mpirun} --version prints {show(text.strip())}; wanted mpirun of Open MPI, which mode mpi runs ranks with"
        )
    return max(ORTE, min(PRRTE, int(found[1])))
