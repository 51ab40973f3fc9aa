"""Test unusual containers: which modes run in them, and the text that refuses the others.

docs/image.md shows the same table.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from containers import BUSY, Cluster
from matrix import JAX_LINE

from images import LINE

ROOT = Path(__file__).resolve().parents[2]
START = "/usr/local/bin/docker-entrypoint"
SCRIPT = """
import os
if "OMPI_COMM_WORLD_RANK" in os.environ:
    from mpi4py import MPI
    print("all", MPI.COMM_WORLD.allreduce(1), flush=True)
if "JAX_PROCESS_ID" in os.environ:
    from sagemaker_tf_data import initialize_jax
    initialize_jax()
    from jax.experimental.multihost_utils import process_allgather
    print("all", len(process_allgather(1)), flush=True)
print("did its work", flush=True)
raise ValueError("bad batch 7")
"""
# Only the image of one line has jax; the ring `lines` runs there what the default line cannot.
MODES = ("jax",) if LINE == JAX_LINE else ("single", "ps", "mwms", "mpi")
TOGETHER = ("mpi", "jax")  # two processes on each host, which add up
CANNOT_KEEP = (
    "warning: user 1000 cannot write to /opt/ml/model, /opt/ml/output, /opt/ml/output/data, so the model, the failure "
    "file, the report cannot be kept; wanted folders of that user (chown 1000), or an image whose USER is root"
)
NO_ACCOUNT = "an account for user 1000, for ssh (RUN useradd --uid 1000 --shell /bin/sh trainer)"
NO_RIGHTS = "root's rights for sshd (--cap-add SETGID --cap-add SETUID --cap-add SYS_CHROOT; or another USER"
NO_THREADS = "the seccomp profile of this container refuses clone3"
NO_PLACE = "user 1000 can write to none of /run/entrypoint, /tmp, /var/tmp, /usr/tmp, /dev/shm, /opt/ml, /opt/ml/output"
TRAINER = "trainer:x:1000:1000::/home/trainer"


@dataclass(frozen=True, kw_only=True)
class Odd:
    """A container: Docker's options, its /opt/ml, its texts, and the refusals by mode.

    `starts`: the program that starts the image's entrypoint; `account`: a line of its /etc/passwd; `refuses`: system
    calls that its seccomp profile answers with an error.
    """

    options: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    starts: tuple[str, ...] = ()
    is_open: bool = False  # to everybody; else it is root's
    read_only: tuple[str, ...] = ()  # parts of /opt/ml
    account: str = ""
    refuses: Mapping[str, int] = field(default_factory=dict)
    says: str = ""
    refused: Mapping[str, str] = field(default_factory=dict)  # mode, "" for all -> words


EPERM, ENOSYS = 1, 38
USER = "--user 1000:1000"
HARD = f"{USER} --read-only --cap-drop ALL --security-opt no-new-privileges:true --ipc none"
UNSET_HOME = ("/usr/bin/env", "-u", "HOME", START)
FORBIDDEN = (
    "memfd_create pidfd_open ptrace process_vm_readv sched_setaffinity unshare keyctl perf_event_open close_range"
)
CONTAINERS = {
    "another user": Odd(options=USER, says=CANNOT_KEEP, refused={"mpi": NO_ACCOUNT}),
    "another user, /opt/ml open": Odd(options=USER, is_open=True, refused={"mpi": NO_ACCOUNT}),
    "another user with an account": Odd(options=USER, is_open=True, account=f"{TRAINER}:/bin/sh"),
    "an account without a shell": Odd(
        options=USER,
        is_open=True,
        account=f"{TRAINER}:/usr/sbin/nologin",
        refused={
            "mpi": "an account with a shell, for ssh (trainer's is /usr/sbin/nologin: usermod --shell /bin/sh trainer)"
        },
    ),
    "read-only root": Odd(options="--read-only", says="TMPDIR is /dev/shm/entrypoint-"),
    "HOME unset": Odd(starts=UNSET_HOME),
    "HOME not writable": Odd(options=USER, environment={"HOME": "/root"}, is_open=True, refused={"mpi": NO_ACCOUNT}),
    "no /tmp": Odd(
        starts=("/bin/sh", "-c", 'rm -r /tmp /var/tmp && exec "$0" "$@"', START),
        says="nothing can be written to /tmp: TMPDIR is /run/entrypoint/tmp for all programs",
    ),
    "/dev/shm of 64 MB": Odd(options="--shm-size 64m"),
    "no /dev/shm": Odd(options="--ipc none"),
    "no capabilities": Odd(options="--cap-drop ALL", refused={"mpi": NO_RIGHTS}),
    "three capabilities": Odd(options="--cap-drop ALL --cap-add SETGID --cap-add SETUID --cap-add SYS_CHROOT"),
    "no new privileges": Odd(options="--security-opt no-new-privileges:true"),
    "seccomp": Odd(refuses={**dict.fromkeys(FORBIDDEN.split(), EPERM), "clone3": ENOSYS}),
    "seccomp of an old Docker": Odd(refuses={"clone3": EPERM}, refused={"": NO_THREADS}),
    "LANG=C": Odd(environment={"LANG": "C", "LC_ALL": "C"}),
    "LANG=xx_YY": Odd(environment={"LANG": "xx_YY.UTF-8", "LC_ALL": "xx_YY"}),
    "umask 077": Odd(starts=("/bin/sh", "-c", 'umask 077 && exec "$0" "$@"', START)),
    "all at once": Odd(
        options=HARD,
        environment={"LANG": "C"},
        starts=UNSET_HOME,
        is_open=True,
        account=f"{TRAINER}:/bin/sh",
        says="TMPDIR is /opt/ml/output/entrypoint-",
    ),
    "/opt/ml/input and code read-only": Odd(read_only=("input", "code")),
    "nowhere to write": Odd(options=HARD, starts=UNSET_HOME, refused={"": NO_PLACE}),
}
# Of each kind that ends in a way of its own one mode; what each mode does in the others are variants.
USUAL = {
    ("another user", "single"), ("read-only root", "mpi"), ("no capabilities", "mpi"), ("all at once", "mwms"),
    ("nowhere to write", "ps"), ("/opt/ml/input and code read-only", "single"),
}  # fmt: skip
EACH = [
    pytest.param(name, mode, id=f"{name}, {mode}", marks=() if (name, mode) in USUAL else pytest.mark.more)
    for name in CONTAINERS
    for mode in MODES
]


@pytest.mark.parametrize("name, mode", EACH)
def test_script_runs_or_one_line_names_the_missing_part(
    cluster: Callable[..., Cluster], tmp_path: Path, name: str, mode: str
) -> None:
    """The job ends by the script's own exception, or one line names the missing part."""
    odd = CONTAINERS[name]
    options = odd.options.split()
    if odd.refuses:
        options += ["--security-opt", f"seccomp={profile(tmp_path, odd.refuses)}"]
    together = {"ENTRYPOINT_PROCESSES_PER_HOST": "2"} if mode in TOGETHER else {}
    with cluster(
        code=SCRIPT,
        hosts=1 if mode == "single" else 2,
        mode=mode,
        environment={**BUSY, **odd.environment, **together},
        mounts=[f"{passwd(tmp_path, odd.account)}:/etc/passwd:ro"] if odd.account else (),
        open_to_all=odd.is_open,
        read_only=odd.read_only,
        options=options,
        starts=odd.starts,
    ) as job:
        endings = job.wait()
        refused = odd.refused.get(mode) or odd.refused.get("")
        everything = "".join(ending.log for ending in endings.values())
        assert not re.search(r'File "[^"]*/entrypoint/', everything), "a traceback of ours"
        for ending in endings.values():
            assert ending.exit_code == (78 if refused else 1)
            assert (refused or odd.says) in ending.log
            if not refused:
                assert odd.says in ending.log.partition(" started, pid ")[0], "it is said too late"
                assert re.search(r"job failed: algo-\d [^:]*\(exit code 1\): ValueError: bad batch 7", ending.log)
                assert bool(ending.failure) == (odd.says != CANNOT_KEEP)
        if not refused:  # one that was behind the first to fail may have been ended before it said so
            assert "did its work" in everything and ("all 4" in everything) == (mode in TOGETHER)
        if mode == "single":
            assert everything.count("Traceback") == (not refused)


def test_page_of_the_image_lists_all_tested_containers() -> None:
    page = (ROOT / "docs/image.md").read_text()
    firsts = [line.split("|")[1].strip() for line in page.splitlines() if line.startswith("|")]
    assert CONTAINERS.keys() <= {name for first in firsts for name in first.split("<br>")}


def passwd(folder: Path, account: str) -> Path:
    path = folder / "passwd"
    sshd = "sshd:x:100:65534::/run/sshd:/usr/sbin/nologin"
    path.write_text(f"root:x:0:0:root:/root:/bin/bash\n{sshd}\n{account}\n")
    return path


def profile(folder: Path, refuses: Mapping[str, int]) -> Path:
    path = folder / "seccomp.json"
    rules = [{"names": [name], "action": "SCMP_ACT_ERRNO", "errnoRet": number} for name, number in refuses.items()]
    path.write_text(json.dumps({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": rules}))
    return path
