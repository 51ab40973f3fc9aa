"""Find, before the start, programs that a plan needs and the image lacks, beside Python and the user's code."""

import contextlib
import os
import pwd
from collections.abc import Collection, Iterable
from pathlib import Path

from entrypoint.launcher.plan.plan import ProcessSpec, Role

SSHD = "/usr/sbin/sshd"
SHADOW, APT, STATUS = Path("/etc/shadow"), Path("/usr/bin/apt-get"), Path("/proc/self/status")
# Rights of root with which sshd changes its user and confines a part of itself (capabilities(7)).
RIGHTS = {6: "SETGID", 7: "SETUID", 18: "SYS_CHROOT"}
# Packages of Debian and Ubuntu; those of Amazon Linux have the same or a similar name.
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
    """Return the programs that the processes of a plan, or of one of its hosts, need. `daemon` is Open MPI's."""
    roles = {spec.role for spec in specs}
    names = [name for role, names in OF_ROLES.items() if role in roles for name in names]
    return tuple(dict.fromkeys(daemon if name == "orted" else name for name in names))


def mpirun() -> str:
    """Return the name to start mpirun by. Some images have a script of that name that adds options.

    AWS's runs `mpirun.real --allow-run-as-root "$@"`, which we pass, too; Open MPI takes no option twice.
    """
    wrapper, real = _found("mpirun"), _found("mpirun.real")
    return "mpirun.real" if wrapper and real and Path(wrapper).parent == Path(real).parent else "mpirun"


def lacking(names: Collection[str]) -> list[str]:
    """Return the programs that are missing, each with a remedy."""
    absent = [name for name in names if not _found(name)]
    if "mpirun" in absent:  # its daemon belongs to the same package
        absent = [name for name in absent if name not in ("orted", "prted")]
    remedy = "apt-get install " if APT.exists() else "as in Debian's "
    found = [f"{Path(name).name} ({remedy}{PROGRAMS[name]})" for name in absent]
    if SSHD in names and SSHD not in absent and (why := _locked_out()):
        found.append(why)
    return found


def _found(name: str) -> str | None:
    """Return the path of a program on PATH."""
    import shutil  # here, since it imports all kinds of compression, and only ranks need programs

    return shutil.which(name)


def _locked_out() -> str:
    """Return what sshd needs before mpirun can log in as our own user on other hosts; "" if nothing is missing."""
    user = os.geteuid()
    try:
        account = pwd.getpwuid(user)
    except KeyError:
        return f"an account for user {user}, for ssh (RUN useradd --uid {user} --shell /bin/sh trainer)"
    name, shell = account.pw_name, account.pw_shell or "/bin/sh"
    if user == 0 and (lost := _lost_rights()):
        options = " ".join(f"--cap-add {right}" for right in lost)
        return f"root's rights for sshd ({options}; or another USER that has an account, whose sshd needs none)"
    with contextlib.suppress(OSError):  # an account without a password, as in Red Hat's images
        if any(line.startswith(f"{name}:!") for line in SHADOW.read_text(errors="replace").splitlines()):
            return f"an account that sshd lets in ({name}'s is locked: usermod -p '*' {name})"
    if Path(shell).name in ("nologin", "false") or not os.access(shell, os.X_OK):
        return f"an account with a shell, for ssh ({name}'s is {shell}: usermod --shell /bin/sh {name})"
    return ""


def _lost_rights() -> list[str]:
    """Return the rights that a container's root lacks, as after --cap-drop ALL."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = STATUS.read_text().splitlines()
        held = int(next(line.split()[1] for line in lines if line.startswith("CapEff:")), 16)
        return [right for number, right in RIGHTS.items() if not held >> number & 1]
    return []
