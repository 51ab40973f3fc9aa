"""Run the measured jobs: ours, and the same by hand, which no launcher can beat."""

import contextlib
import re
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.docker import MARK, docker, write_config
from benchmarks.profile_start.kernel import Kernel
from benchmarks.profile_start.phases import Host

SCRIPT = """
print(f"MARK {time.monotonic_ns()}", flush=True)
time.sleep(1.5)
"""
NAMES = ("algo-1", "algo-2")
KEYS = "/root/.ssh"
# What a person would have made before: keys that are shared, and a config that trusts them.
SSH_CONFIG = "Host *\n  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n  LogLevel ERROR\n"
SSHD = f"/usr/sbin/sshd -D -o HostKey={KEYS}/id_ed25519 -o UsePAM=no -o UseDNS=no"
MPIRUN = (
    "until (: </dev/tcp/algo-2/22) 2>/dev/null; do sleep 0.01; done; "
    "exec mpirun --allow-run-as-root -np 2 --host algo-1,algo-2 {options} /opt/venv/bin/python /opt/ml/code/train.py"
)


def mpi_by_hand(options: str) -> tuple[tuple[str, ...], ...]:
    """Return what each of two hosts runs for one rank on each: mpirun with these options; sshd."""
    return ("bash", "-c", MPIRUN.format(options=options)), ("sh", "-c", f"exec {SSHD}")


@dataclass(frozen=True)
class Case:
    """A job of ours, and the commands of its hosts when it runs by hand."""

    title: str
    hyperparameters: dict[str, str]
    by_hand: tuple[tuple[str, ...], ...]
    script: str = SCRIPT

    @property
    def hosts(self) -> tuple[str, ...]:
        return NAMES[: len(self.by_hand)]


PYTHON = ("python", "/opt/ml/code/train.py")
CASES = {
    "single": Case("single, 1 host", {}, (PYTHON,)),
    "ps": Case("parameter servers, 2 hosts", {"sagemaker_parameter_server_enabled": "true"}, (PYTHON, PYTHON)),
    "mpi": Case(
        "MPI, 2 hosts x 1 rank",
        {"sagemaker_mpi_enabled": "true"},
        mpi_by_hand("--mca btl ^openib"),
    ),
}


def run(image: str, case: Case, ours: bool) -> list[Host]:
    """Run one job in containers on a network of their own; return its hosts, as the kernel has reported them."""
    with _made(image, case, ours) as containers, Kernel() as kernel:
        _start(containers, ours)
        pids = [int(pid) for pid in docker("inspect", "-f", "{{.State.Pid}}", *containers).split()]
        marks = [[int(mark) for mark in re.findall(r"MARK (\d+)", log)] for log in _ended(containers, case, ours)]
        return [Host(kernel.below(pid), lines) for pid, lines in zip(pids, marks, strict=True)]


def printed(image: str, case: Case, ours: bool) -> list[str]:
    """Return what the hosts of one job have printed."""
    with _made(image, case, ours) as containers:
        _start(containers, ours)
        return _ended(containers, case, ours)


@contextlib.contextmanager
def _made(image: str, case: Case, ours: bool) -> Iterator[list[str]]:
    """Create a container for each host, on a network of their own; remove them at the end."""
    name = f"profile-{uuid.uuid4().hex[:8]}"
    with tempfile.TemporaryDirectory(prefix=name) as folder, _network(name):
        containers = [_create(name, image, case, rank, Path(folder), ours) for rank in range(len(case.hosts))]
        try:
            yield containers
        finally:
            docker("rm", "-f", "-v", *containers, check=False)


def _start(containers: list[str], ours: bool) -> None:
    # By hand, mpirun's host comes last: it then finds what it would have to wait for.
    docker("start", *(containers if ours else reversed(containers)))


def _ended(containers: list[str], case: Case, ours: bool) -> list[str]:
    """Wait for the containers that end by themselves; return the logs of all."""
    waited = containers if ours or case.hyperparameters.get("sagemaker_mpi_enabled") is None else containers[:1]
    codes = docker("wait", *waited, within=900).split()
    logs = [_logs(container) for container in containers]
    if set(codes) != {"0"}:
        raise SystemExit(f"a host failed, exit codes {codes}:\n" + "".join(logs))
    return logs


def _create(run: str, image: str, case: Case, rank: int, folder: Path, ours: bool) -> str:
    name = NAMES[rank]
    base = folder / name
    write_config(base, name, case.hosts, case.hyperparameters)
    (code := base / "code").mkdir()
    (code / "train.py").write_text(case.script)
    mounts = ["-v", f"{base / 'input'}:/opt/ml/input", "-v", f"{code}:/opt/ml/code"]
    if not ours and case.hyperparameters.get("sagemaker_mpi_enabled"):
        mounts += ["-v", f"{_keys(folder)}:{KEYS}"]
    docker(
        "create", "--name", f"{run}-{name}", "--hostname", f"ip-10-0-0-{rank + 1}.ec2.internal", "--label", MARK,
        "--network", run, "--network-alias", name, *mounts,
        image, *(["train"] if ours else case.by_hand[rank]),
    )  # fmt: skip
    return f"{run}-{name}"


def _keys(folder: Path) -> Path:
    keys = folder / "keys"
    if not keys.exists():
        keys.mkdir(mode=0o700)
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", keys / "id_ed25519"], check=True)
        (keys / "authorized_keys").write_bytes((keys / "id_ed25519.pub").read_bytes())
        (keys / "config").write_text(SSH_CONFIG)
    return keys


def _logs(container: str) -> str:
    done = subprocess.run(["docker", "logs", container], capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


@contextlib.contextmanager
def _network(name: str) -> Iterator[None]:
    docker("network", "create", "--label", MARK, name)
    try:
        yield
    finally:
        docker("network", "rm", name, check=False)
