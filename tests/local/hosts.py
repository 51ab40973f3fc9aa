"""Run N hosts of a job on this machine: N `train` processes on loopback addresses, each with its own /opt/ml."""

import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pytest
from processes import processes_with
from waiting import eventually

from entrypoint.simulate.process_engine import reserved

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "tests" / "programs"
JAX = Path(os.environ.get("TEST_JAX") or Path(sys.prefix) / "jax")  # tests/run.sh makes it
CONTROL_PORT, SSH_PORT = 9000, 9050
PORTS = (*range(2222, 2232), *range(8890, 8898), CONTROL_PORT, SSH_PORT)  # that a host may use, before they are moved
# For jobs whose parameter servers have nothing to hold: a `tensorflow` that only listens, in a fiftieth of the time.
LISTENS = {"PYTHONPATH": os.pathsep.join([str(ROOT / "tests" / "stand_ins"), str(ROOT)])}
LONG = 240.0  # seconds; says when to give up, not how fast anything is
STOPPED = 143
# What the SDK sends for a mode.
MODES = {
    "single": {},
    "ps": {"sagemaker_parameter_server_enabled": "true"},
    "mwms": {"sagemaker_multi_worker_mirrored_strategy_enabled": "true"},
    "mpi": {"sagemaker_mpi_enabled": "true"},
    "jax": {"sagemaker_entrypoint_mode": "jax"},
}


def need_mpi() -> None:
    """Skip the test where there is no MPI."""
    if not (shutil.which("mpirun") and Path("/usr/sbin/sshd").exists()):
        pytest.skip("needs Open MPI and an ssh daemon")
    pytest.importorskip("mpi4py")


def write(path: Path, content: str | bytes) -> Path:
    """Write a file into folders that need not be there; return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def clean_environment(**more: str) -> dict[str, str]:
    """Return the environment of this process without variables that a launcher would read."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("ENTRYPOINT_", "SM_"))}
    return {**own, "PIP_DISABLE_PIP_VERSION_CHECK": "1", **more}


def entrypoint(*words: object, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command of `entrypoint` to its end; return stderr and stdout as one text."""
    return subprocess.run(
        [sys.executable, "-m", "entrypoint", *map(str, words)], cwd=cwd, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=3 * LONG,
        env=clean_environment(PYTHONPATH=str(ROOT), **environment),
    )  # fmt: skip


@dataclass
class Host:
    """One `train` process and its results."""

    name: str
    base: Path
    process: subprocess.Popen[bytes]
    output: bytearray = field(default_factory=bytearray)
    reader: threading.Thread | None = None

    @property
    def log(self) -> str:
        return self.output.decode("utf-8", "replace")

    @property
    def failure(self) -> str | None:
        path = self.base / "output" / "failure"
        return path.read_text() if path.is_file() else None

    def kill(self, number: int = signal.SIGKILL) -> None:
        self.process.send_signal(number)


class Hosts:
    """The hosts of a job, from their /opt/ml and their start to exit codes, logs, failure files and the last process.

    `program` is one of tests/programs, unless `code` has its text, or all files of /opt/ml/code by name. `each`: how
    many processes of the mode run on a host. `absent`: hosts that the test starts later. `unread`: hosts whose output
    nobody reads until `read` is called. `before`: by host, a command that runs another one. Settings of the launcher
    are keywords in capitals: STOP_GRACE=2 is ENTRYPOINT_STOP_GRACE.
    """

    def __init__(
        self,
        folder: Path,
        count: int = 1,
        program: str = "train.py",
        *,
        mode: str = "single",
        each: int = 0,
        hyperparameters: dict[str, Any] | None = None,
        environment: dict[str, str] | None = None,
        code: str | dict[str, Any] | None = None,
        absent: tuple[str, ...] = (),
        unread: tuple[str, ...] = (),
        base_files: dict[str, str] | None = None,
        groups: dict[str, list[int]] | None = None,
        before: dict[str, list[str]] | None = None,
        **settings: object,
    ) -> None:
        if mode == "mpi":
            need_mpi()
        self.folder, self.absent, self.unread = folder, absent, unread
        self.groups = {name: [f"algo-{number}" for number in members] for name, members in (groups or {}).items()}
        self.names = [f"algo-{number + 1}" for number in range(count)]
        net = f"127.{random.randint(16, 250)}.{random.randint(1, 250)}"
        self.addresses = {name: f"{net}.{number + 1}" for number, name in enumerate(self.names)}
        self.stride = 100
        # TensorFlow's servers listen on all addresses: ports that no other host has, and no other run on this machine.
        self.ports = contextlib.ExitStack()
        wanted = [port + rank * self.stride for rank in range(count) for port in PORTS]
        self.port_base = self.ports.enter_context(reserved(wanted))
        self.control_port = CONTROL_PORT + self.port_base
        self.environment = {
            **clean_environment(),
            "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
            "PYTHONUNBUFFERED": "1",
            "ENTRYPOINT_HOST_ADDRESSES": json.dumps(self.addresses),
            "ENTRYPOINT_PORT_STRIDE": str(self.stride),
            "ENTRYPOINT_PORT_BASE": str(self.port_base),
            "ENTRYPOINT_CONTROL_PORT": str(CONTROL_PORT),
            "ENTRYPOINT_SSH_PORT": str(SSH_PORT),
            "TEST_FOLDER": str(folder),  # the mark by which a process that is left behind is found
            **{f"ENTRYPOINT_{name}": str(value) for name, value in settings.items()},
            **(environment or {}),
        }
        places = (
            "sagemaker_mpi_num_of_processes_per_host" if mode == "mpi" else "sagemaker_entrypoint_processes_per_host"
        )
        per_host = {places: str(each)} if each else {}
        self.hyperparameters = {"sagemaker_program": program, **MODES[mode], **per_host, **(hyperparameters or {})}
        self.code = (PROGRAMS / program).read_bytes() if code is None else code
        if not isinstance(self.code, dict):
            self.code = {program: self.code}
        self.base_files = base_files or {}
        self.before = before or {}
        self.hosts: dict[str, Host] = {}

    def __enter__(self) -> "Hosts":
        for name in self.names:
            self._make_tree(name)
        for name in self.names:
            if name not in self.absent:
                self.start(name)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        for host in self.hosts.values():
            if host.process.poll() is None:
                host.process.kill()
                host.process.wait()
        for pid in processes_with(str(self.folder)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def __getitem__(self, number: int) -> Host:
        return self.hosts[f"algo-{number}"]

    def base(self, name: str) -> Path:
        return self.folder / name

    def _make_tree(self, name: str) -> None:
        base = self.base(name)
        for part in ("input/config", "input/data/train", "model", "output/data", "code"):
            (base / part).mkdir(parents=True)
        resources = {
            "current_host": name,
            "hosts": self.names,
            "network_interface_name": "eth0",
            "topology": None,
            **self._groups_of(name),
        }
        config = base / "input" / "config"
        (config / "resourceconfig.json").write_text(json.dumps(resources))
        (config / "hyperparameters.json").write_text(json.dumps(self.hyperparameters))
        (config / "inputdataconfig.json").write_text(json.dumps({"train": {"TrainingInputMode": "File"}}))
        for path, content in self.code.items():
            write(base / "code" / path, content)
        for path, text in self.base_files.items():
            target = base / path
            if target.is_dir():
                shutil.rmtree(target)
            write(target, text)

    def _groups_of(self, host: str) -> dict[str, Any]:
        if not self.groups:
            return {}
        return {
            "current_group_name": next(group for group, members in self.groups.items() if host in members),
            "instance_groups": [
                {"instance_group_name": group, "instance_type": f"ml.{group}.large", "hosts": members}
                for group, members in self.groups.items()
            ],
        }

    def start(self, name: str) -> Host:
        base = self.base(name)
        environment = {
            **self.environment,
            "SAGEMAKER_BASE_DIR": str(base),
            "ENTRYPOINT_RUN_DIR": str(base / "run"),
            "HOSTNAME": f"ip-10-0-0-{self.names.index(name)}.ec2.internal",
        }
        process = subprocess.Popen(
            [*self.before.get(name, []), sys.executable, "-c", "from entrypoint.train import train; train()"],
            cwd="/",
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        host = Host(name=name, base=base, process=process)
        if name not in self.unread:
            self.read(host)
        self.hosts[name] = host
        return host

    def read(self, host: Host) -> None:
        host.reader = threading.Thread(target=self._read, args=(host.process.stdout, host.output), daemon=True)
        host.reader.start()

    @staticmethod
    def _read(stdout: IO[bytes], into: bytearray) -> None:
        with stdout, contextlib.suppress(OSError):
            while block := os.read(stdout.fileno(), 1 << 16):
                into.extend(block)

    def close(self) -> None:
        """Release the ports, and close output that nobody reads."""
        self.ports.close()
        for host in self.hosts.values():
            if host.process.stdout and not host.reader:
                host.process.stdout.close()

    # --- what happened ---

    def says(self, pattern: str, within: float = LONG, host: int | None = None) -> re.Match[str]:
        """Wait until a line of any host (or of one) matches; return the match."""

        def search() -> re.Match[str] | None:
            logs = [self[host].log] if host else [each.log for each in self.hosts.values()]
            return next((m for log in logs if (m := re.search(pattern, log, re.MULTILINE))), None)

        try:
            return eventually(search, within, f"a line like {pattern}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self}") from None

    def all_say(self, pattern: str, within: float = LONG) -> None:
        for name in self.hosts:
            self.says(pattern, within, host=int(name.removeprefix("algo-")))

    def end(self, within: float = LONG) -> list[int]:
        """Wait until all hosts have ended; return exit codes in rank order, 128 + signal for a killed `train`."""
        hosts = self.hosts.values()
        try:
            eventually(lambda: None not in [host.process.poll() for host in hosts], within, "all hosts to end")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self}") from None
        for host in hosts:
            if host.reader:
                host.reader.join(timeout=LONG)
        return [128 - code if code < 0 else code for code in (host.process.returncode for host in hosts)]

    def must_end(self, code: int, cause: str | None = None, within: float = LONG) -> str:
        """Check that every host exits with `code` and that failure texts share their first line; return that line.

        The line begins with `cause`. A job that succeeds or is stopped has no failure file, unless there is a `cause`.
        """
        codes = self.end(within)
        assert codes == [code] * len(codes), f"exit codes {codes}\n{self}"
        if code in (0, STOPPED) and cause is None:
            assert not any(self.failures), self
            return ""
        first = {(text or "").partition("\n")[0] for text in self.failures}
        assert len(first) == 1 and next(iter(first)).startswith(cause or ""), f"failures {first}\n{self}"
        return first.pop()

    def stop(self, when: str = "") -> None:
        """Send SIGTERM to all hosts, as SageMaker does, after all of them have printed `when`."""
        if when:
            self.all_say(when)
        for host in self.hosts.values():
            if host.process.poll() is None:
                host.kill(signal.SIGTERM)

    def pid_of(self, process: str, host: int = 1) -> int:
        """Return the pid of a process of the plan, from the log."""
        return int(self.says(rf"\] {re.escape(process)} started, pid (\d+)", host=host)[1])

    def control_address(self, host: int) -> tuple[str, int]:
        return self.addresses[f"algo-{host}"], self.control_port + (host - 1) * self.stride

    def status(self, host: int = 1) -> dict[str, Any]:
        address, port = self.control_address(host)
        with urllib.request.urlopen(f"http://{address}:{port}/status", timeout=10) as answer:
            return json.load(answer)

    @property
    def failures(self) -> list[str | None]:
        return [host.failure for host in self.hosts.values()]

    def json_of(self, name: str) -> list[Any]:
        """Return the JSON files of a name or pattern that scripts wrote to /opt/ml/output/data, host by host."""
        folders = [host.base / "output" / "data" for host in self.hosts.values()]
        return [json.loads(path.read_text()) for folder in folders for path in sorted(folder.glob(name))]

    def __str__(self) -> str:
        return "\n".join(
            f"--- {host.name}: exit code {host.process.poll()}, failure file {host.failure!r}\n{host.log}"
            for host in self.hosts.values()
        )


@dataclass
class Run:
    """One `entrypoint local` process; its terminal is a file."""

    process: subprocess.Popen[bytes]
    folder: Path

    @property
    def terminal(self) -> str:
        return (self.folder / "terminal.txt").read_text("utf-8", "replace")

    @property
    def output(self) -> Path:
        return self.folder / "out"

    def end(self) -> int:
        return self.process.wait(LONG)

    def must_end(self, code: int, *exits: str | int, cause: str | None = None) -> None:
        """Wait for the end; check the exit code, those of the hosts if given, and the beginning of the cause."""
        assert self.end() == code, self.terminal
        if exits:
            assert self.exits == [str(each) for each in exits]
        if cause is not None:
            assert self.cause.startswith(cause), self.cause

    def says(self, text: str) -> None:
        eventually(lambda: text in self.terminal, within=LONG, what=f"{text!r} in the output")

    def ml(self, number: int) -> Path:
        return self.output / f"algo-{number}" / "ml"

    def log(self, number: int) -> str:
        return (self.output / f"algo-{number}" / "log.txt").read_text()

    def json_of(self, name: str) -> list[Any]:
        """Return a JSON file that the scripts wrote to /opt/ml/output/data, host by host."""
        return [json.loads(path.read_text()) for path in sorted(self.output.glob(f"algo-*/ml/output/data/{name}"))]

    # --- what stands at the end ---

    @property
    def _table(self) -> str:
        return self.terminal.partition("tail s")[2]

    def row(self, host: str) -> list[str]:
        """Return the host's row of the table."""
        return re.findall(rf"^{host} +.*$", self._table, re.MULTILINE)[0].split()

    @property
    def exits(self) -> list[str]:
        """Return the exit column of the table."""
        return re.findall(r"^algo-\d+ +(\S+)", self._table, re.MULTILINE)

    @property
    def faults(self) -> list[str]:
        """Return the log lines about injected faults."""
        return re.findall(r"^fault.*$", self._table, re.MULTILINE)

    @property
    def cause(self) -> str:
        return self.terminal.partition("\nfailed: ")[2].partition("\n")[0]
