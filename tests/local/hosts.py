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
    """The hosts of a job: make their trees, start them, collect exit codes, logs and failure files; end what is left.

    `before`: by host, a command that runs another one. `code`: folder or files (name to text) for /opt/ml/code; a str
    is one of tests/programs, as the program. `unread`: hosts whose output nobody reads, until `read` is called.
    """

    def __init__(
        self,
        folder: Path,
        count: int = 1,
        program: str = "train.py",
        *,
        hyperparameters: dict[str, str] | None = None,
        environment: dict[str, str] | None = None,
        code: dict[str, str | bytes] | None = None,
        absent: tuple[str, ...] = (),
        unread: tuple[str, ...] = (),
        base_files: dict[str, str] | None = None,
        groups: dict[str, list[int]] | None = None,
        before: dict[str, list[str]] | None = None,
    ) -> None:
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
            **{key: value for key, value in os.environ.items() if not key.startswith(("ENTRYPOINT_", "SM_"))},
            "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
            "PYTHONUNBUFFERED": "1",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "ENTRYPOINT_HOST_ADDRESSES": json.dumps(self.addresses),
            "ENTRYPOINT_PORT_STRIDE": str(self.stride),
            "ENTRYPOINT_PORT_BASE": str(self.port_base),
            "ENTRYPOINT_CONTROL_PORT": str(CONTROL_PORT),
            "ENTRYPOINT_SSH_PORT": str(SSH_PORT),
            "TEST_FOLDER": str(folder),  # the mark by which a process that is left behind is found
            **(environment or {}),
        }
        self.hyperparameters = {"sagemaker_program": program, **(hyperparameters or {})}
        self.code = {program: (PROGRAMS / program).read_bytes()} if code is None else code
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
            target = base / "code" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content if isinstance(content, bytes) else content.encode())
        for path, text in self.base_files.items():
            target = base / path
            if target.is_dir():
                shutil.rmtree(target)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)

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
        """Release the ports, and output that is not read."""
        self.ports.close()
        for host in self.hosts.values():
            if host.process.stdout and not host.reader:
                host.process.stdout.close()

    # --- what happened ---

    def says(self, pattern: str, within: float = LONG, host: int | None = None) -> re.Match[str]:
        """Wait until a line of any host (or of one) matches; the match."""

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
        """Exit codes in rank order, once all have ended. 128 + signal if a host's `train` was killed."""

        def codes() -> list[int] | None:
            found = [host.process.poll() for host in self.hosts.values()]
            return None if None in found else [128 - code if code < 0 else code for code in found]

        try:
            result = eventually(lambda: (codes() or [None]) != [None], within, "all hosts to end") and codes()
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self}") from None
        for host in self.hosts.values():
            if host.reader:
                host.reader.join(timeout=LONG)
        assert result is not None
        return result

    def signal(self, number: int) -> None:
        for host in self.hosts.values():
            if host.process.poll() is None:
                host.process.send_signal(number)

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
        """Return a JSON file that the scripts wrote to /opt/ml/output/data, of every host."""
        return [json.loads((host.base / "output" / "data" / name).read_text()) for host in self.hosts.values()]

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

    def says(self, text: str) -> None:
        eventually(lambda: text in self.terminal, within=LONG, what=f"{text!r} in the output")

    def ml(self, number: int) -> Path:
        return self.output / f"algo-{number}" / "ml"

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
        """Return the log's lines on the faults."""
        return re.findall(r"^fault.*$", self._table, re.MULTILINE)

    @property
    def cause(self) -> str:
        return self.terminal.partition("\nfailed: ")[2].partition("\n")[0]
