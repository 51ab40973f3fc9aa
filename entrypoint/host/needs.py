"""What a job needs beside Python and the user's code: programs that its image may lack, by name.

They are looked for before anything starts. Modules that we start are looked for by the prepare step.
"""

import contextlib
import os
import pwd
from collections.abc import Collection, Iterable
from pathlib import Path

from entrypoint.job.open_mpi import which
from entrypoint.plan.plan import ProcessSpec, Role

SSHD = "/usr/sbin/sshd"
SHADOW, APT = Path("/etc/shadow"), Path("/usr/bin/apt-get")
# Debian's and Ubuntu's package, of which Amazon Linux's have the name, or one like it.
PROGRAMS = {
    "mpirun": "openmpi-bin",
    "orted": "openmpi-bin",
    "prted": "openmpi-bin",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    SSHD: "openssh-server",
}
OF_ROLES = {
    Role.LAUNCHER: ("mpirun", "orted"),
    Role.KEY: ("ssh-keygen",),
    Role.SSHD: (SSHD, "orted", "ssh"),
}


def programs(specs: Iterable[ProcessSpec], daemon: str = "orted") -> tuple[str, ...]:
    """Return the programs that the processes of a plan, or of one of its hosts, take; `daemon` is Open MPI's."""
    roles = {spec.role for spec in specs}
    names = [name for role, names in OF_ROLES.items() if role in roles for name in names]
    return tuple(dict.fromkeys(daemon if name == "orted" else name for name in names))


def mpirun() -> str:
    """Return the name to start mpirun by, which some images have as a script that adds options before it.

    AWS's says `mpirun.real --allow-run-as-root "$@"`, as we do. Open MPI takes no option twice.
    """
    wrapper, real = _which("mpirun"), _which("mpirun.real")
    return "mpirun.real" if wrapper and real and Path(wrapper).parent == Path(real).parent else "mpirun"


def lacking(names: Collection[str]) -> list[str]:
    """Return those of the programs that are not there, each with what to do about it."""
    absent = [name for name in names if not _which(name)]
    if "mpirun" in absent:  # its daemon is of the same package
        absent = [name for name in absent if name not in ("orted", "prted")]
    found = [f"{Path(name).name} ({_remedy(name)})" for name in absent]
    if SSHD in names and SSHD not in absent and (user := _locked_out()):
        found.append(f"an account that sshd lets in ({user}'s is locked: usermod -p '*' {user})")
    return found


def _which(name: str) -> str:
    return which(name, os.get_exec_path())


def _locked_out() -> str:
    """Return our own name if nobody can log in by it, as in Red Hat's images; sshd asks, where it runs as root."""
    name = pwd.getpwuid(os.geteuid()).pw_name
    with contextlib.suppress(OSError):
        if any(line.startswith(f"{name}:!") for line in SHADOW.read_text(errors="replace").splitlines()):
            return name
    return ""


def _remedy(name: str) -> str:
    return f"apt-get install {PROGRAMS[name]}" if APT.exists() else f"as in Debian's {PROGRAMS[name]}"
