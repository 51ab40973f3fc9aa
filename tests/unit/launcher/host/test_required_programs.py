"""Test launcher/host/required_programs.py: which programs and modules a plan needs, and which programs are missing."""

import os
import pwd
import re
import sys

import pytest

from entrypoint.launcher.host import required_programs
from entrypoint.launcher.host.required_programs import lacking, mpirun, programs
from entrypoint.launcher.plan.distributions.common import modules
from entrypoint.launcher.plan.plan import Command, Duty, ProcessSpec, Role


def spec(role: Role, **more) -> ProcessSpec:
    return ProcessSpec(host="algo-1", name="x", role=role, duty=Duty.SERVER, **more)


@pytest.fixture
def put(monkeypatch, tmp_path):
    """Return `put(name, ...)`, which adds programs to the only folder in PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))

    def make(*names: str) -> None:
        for name in names:
            (tmp_path / name).write_text("#!/bin/sh\n")
            (tmp_path / name).chmod(0o755)

    return make


def test_real_mpirun_is_preferred_to_its_wrapper(put):
    put("mpirun")
    assert mpirun() == "mpirun"
    put("mpirun.real")
    assert mpirun() == "mpirun.real"


def test_missing_program_is_named_with_its_package(put):
    needed = programs([spec(Role.SSHD), spec(Role.KEY), spec(Role.LAUNCHER)])
    assert any(re.match(r"mpirun \(.*openmpi-bin\)", text) for text in lacking(needed))
    assert "orted" not in str(lacking(needed))
    put("mpirun", "orted")
    found = lacking(needed)
    assert {text.partition(" ")[0] for text in found} - {"sshd"} == {"ssh", "ssh-keygen"}
    assert all("openssh-" in text for text in found)
    put("ssh", "ssh-keygen")
    assert lacking(["ssh", "ssh-keygen", "mpirun", "orted"]) == []


@pytest.mark.parametrize("daemon", ["orted", "prted"])  # of Open MPI 4 and 5
def test_missing_daemon_of_mpirun_is_named(put, daemon):
    put("mpirun")
    needed = programs([spec(Role.LAUNCHER), spec(Role.RANK)], daemon)
    (found,) = lacking(needed)
    assert found.startswith(f"{daemon} (") and "openmpi-bin" in found
    put(daemon)
    assert lacking(needed) == []


@pytest.mark.parametrize("entry, locked", [("*", False), ("!", True), ("!!", True), ("!locked", True), ("", False)])
def test_locked_account_is_named(monkeypatch, tmp_path, entry, locked):
    monkeypatch.setattr(required_programs, "SHADOW", tmp_path / "shadow")
    monkeypatch.setattr(required_programs, "SSHD", sys.executable)
    me = pwd.getpwuid(os.geteuid()).pw_name
    (tmp_path / "shadow").write_text(f"daemon:!:1::::::\n{me}:{entry}:19000:0:99999:7:::\n")
    assert bool(lacking([sys.executable])) == locked
    (tmp_path / "shadow").unlink()
    assert lacking([sys.executable]) == []


ACCOUNTS = {
    # uid, account, capabilities: what is said
    "no account": (1000, None, 0, r"an account for user 1000, for ssh \(RUN useradd --uid 1000 "),
    "no shell": (1000, "/usr/sbin/nologin", 0, r"an account with a shell, .*usermod --shell /bin/sh trainer"),
    "a shell that is not there": (1000, "/bin/no-such-shell", 0, "an account with a shell"),
    "root without rights": (
        0,
        "/bin/sh",
        0x0,
        r"root's rights for sshd \(--cap-add SETGID --cap-add SETUID --cap-add SYS_",
    ),
    "root without one": (0, "/bin/sh", 0xA80425FB & ~(1 << 18), r"\(--cap-add SYS_CHROOT; "),
    "root with Docker's": (0, "/bin/sh", 0xA80425FB, ""),
    "another user, who needs none": (1000, "", 0, ""),
}


@pytest.mark.parametrize("user, shell, rights, said", ACCOUNTS.values(), ids=ACCOUNTS)
def test_account_refused_by_sshd_is_named_with_a_remedy(monkeypatch, tmp_path, user, shell, rights, said):
    def account(number: int) -> pwd.struct_passwd:
        if shell is None:
            raise KeyError(number)
        return pwd.struct_passwd(("trainer", "x", number, number, "", "/home/trainer", shell))

    monkeypatch.setattr(required_programs.pwd, "getpwuid", account)
    monkeypatch.setattr(required_programs.os, "geteuid", lambda: user)
    for name in ("SHADOW", "STATUS"):
        monkeypatch.setattr(required_programs, name, tmp_path / name)
    (tmp_path / "STATUS").write_text(f"Name:\ttrain\nCapEff:\t{rights:016x}\n")
    monkeypatch.setattr(required_programs, "SSHD", sys.executable)
    found = lacking([sys.executable])
    assert len(found) == bool(said) and all(re.search(said, text) for text in found)


def test_one_host_needs_no_ssh():
    assert programs([spec(Role.LAUNCHER), spec(Role.RANK), spec(Role.PREPARE)]) == ("mpirun", "orted")
    assert programs([spec(Role.CHIEF), spec(Role.PS)]) == ()


def test_plan_needs_the_modules_of_its_programs():
    script = Command(file="train.py", arguments=(), python=("python",))
    assert modules([spec(Role.PS), spec(Role.RANK, program=script), spec(Role.CHIEF, program=script)]) == [
        "mpi4py",
        "tensorflow",
    ]
    assert modules([spec(Role.PS, program=script), spec(Role.WORKER, program=script)]) == []
    assert modules([spec(Role.WORKER)]) == ["tensorflow"]
    shell = Command(file="train.sh", arguments=(), python=("python",))
    assert modules([spec(Role.RANK, program=shell)]) == []
