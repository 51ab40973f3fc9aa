"""Run hosts as containers of the image, on a network made for this run. Everything is removed at its end."""

import contextlib
import inspect
import ipaddress
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from types import ModuleType

from entrypoint.base.errors import ConfigError
from entrypoint.simulate import arp_off, processes
from entrypoint.simulate.engine import (
    FILLER,
    MOUNTS,
    SIGNALS,
    Engine,
    EngineName,
    FaultFailed,
    HostCommand,
    HostsFiles,
    last_line,
)
from entrypoint.simulate.fault import Action, Fault
from entrypoint.simulate.local_channels import ChannelMode
from entrypoint.simulate.spec import LocalJob
from entrypoint.simulate.tree import HostFolder, read, write_config

LABEL = "sagemaker-tf-entrypoint=local"
IMAGE, OF_ARM = "sagemaker-tf-entrypoint:latest", "-arm64"  # as ./build.sh names what it makes
ML = PurePosixPath("/opt/ml")
PATIENCE_SECONDS = 60.0  # seconds for a daemon's answer
_FIRST_ADDRESS = 10  # offset of the first host's address in the network; Docker uses lower ones
_KEEPER = "keeper"  # name of the container that keeps the disks
# A container beside a host, which does to the host what needs more rights than hosts have.
_HELPER = ("run", "--rm", "--interactive", "--label", LABEL)
_MAY_MOUNT = ("--cap-add", "SYS_ADMIN", "--security-opt", "apparmor=unconfined")
_LOOKS = 10  # tries while a container that refuses a command may be starting or ending
_NOT_YET = 75  # exit code of processes.py if there is no such process
_OURS = {  # how to come by our image for a platform
    "linux/amd64": "`./build.sh`, then --image sagemaker-tf-entrypoint:latest",
    "linux/arm64": "`./build.sh --platform linux/arm64`, then --image sagemaker-tf-entrypoint:latest-arm64",
}


class DockerEngine(Engine):
    name = EngineName.DOCKER
    faults = frozenset(Action)
    look_again = 0.5
    runs_here = False

    def __init__(self, job: LocalJob, environment: Mapping[str, str], image: str, shm_size: str | None) -> None:
        super().__init__(job, environment)
        self.image, self.shm_size = image, shm_size
        # The docker command takes the values for `_variables` from its own environment.
        self._environment = {**environment, **{k: v for k, v in self.settings.items() if not _is_clients(k)}}
        self._run = f"entrypoint-{os.getpid()}-{secrets.token_hex(3)}"
        self._docker = shutil.which("docker") or "docker"
        self._hides = any(fault.action is Action.HIDE for fault in job.faults)
        self._addresses: dict[str, list[str]] = {}
        self._hosts_files = HostsFiles(job, self._addresses)
        self._notes: list[str] = []

    def check(self) -> None:
        if not shutil.which("docker"):
            other = "" if sys.platform == "darwin" else ", or use --engine process"
            raise ConfigError(f"there is no docker command; install Docker{other}")
        here = ("version", "--format", "{{.Server.Os}}/{{.Server.Arch}}")
        daemon = self._must("the Docker daemon does not answer", *here).stdout.decode().strip()
        self.image = self._of_platform(daemon)
        image = self._call("image", "inspect", "--format", "{{.Os}}/{{.Architecture}}", self.image)
        if image.returncode:
            how = "./build.sh" + " --platform linux/arm64" * self.image.endswith(OF_ARM) + " builds it, "
            how = how if self.image.removesuffix(OF_ARM) == IMAGE else ""
            raise ConfigError(f"there is no image {self.image} here; {how}--image names another")
        self._notes = self._check_platform(image.stdout.decode().strip(), daemon)
        piped = [channel.name for channel in self.job.channels if channel.mode is ChannelMode.PIPE]
        if sys.platform == "darwin" and piped:
            raise ConfigError(
                f"channel {piped[0]} has mode Pipe, and no FIFO leads from macOS to containers; wanted File or FastFile"
            )
        read(self.job, self.job.names[0], Path(ML), self.settings)  # a bad one must fail before anything starts

    def notes(self) -> list[str]:
        return self._notes

    def _check_platform(self, image: str, daemon: str) -> list[str]:
        """Return a note if the image is emulated here. Raise ConfigError if it cannot run at all."""
        asked = self._environment.get("DOCKER_DEFAULT_PLATFORM") or daemon
        if image == daemon == asked:
            return []
        wanted = f"an image for {daemon}" + (f" ({_OURS[daemon]})" if daemon in _OURS else "")
        # Only a program of the image shows whether the kernel has an emulator for it.
        tried = self._call("run", "--rm", "--label", LABEL, "--network", "none", "--pull", "never",
                           "--entrypoint", "true", self.image)  # fmt: skip
        if not tried.returncode:
            slow = f"note: the image is for {image} and emulated on {daemon}: it is slow"
            aborts = ", and its TensorFlow aborts if the emulator has no AVX" if image == "linux/amd64" else ""
            return [] if image == daemon else [f"{slow}{aborts}; faster: {wanted}"]
        here = daemon
        if asked != daemon:
            here += f", and DOCKER_DEFAULT_PLATFORM is {asked}"
            wanted = f"no DOCKER_DEFAULT_PLATFORM, or an image for {asked}"
        raise ConfigError(
            f"the image {self.image} is for {image}, and Docker cannot run it here ({here}): "
            f"{last_line(tried.stderr or tried.stdout, 'no reason given')}; wanted {wanted}; or an emulator "
            "(on Debian: apt-get install qemu-user-static binfmt-support)"
        )

    def plan(self, whole: bool) -> str:
        shared = Path.home() if sys.platform == "darwin" else None  # Docker's virtual machine may see nothing else
        with tempfile.TemporaryDirectory(prefix=".entrypoint-", dir=shared) as config:
            write_config(self.job, self.job.names[0], Path(config))
            Path(config).chmod(0o755)
            command = ["run", "--rm", "--label", LABEL, *_mount(Path(config), ML / "input/config", readonly=True)]
            command += [*self._variables(), self.image, "entrypoint", "plan", *(["--all"] if whole else [])]
            answer = self._must(f"the image {self.image} prints no plan", *command)
        return answer.stdout.decode(errors="replace").rstrip("\n")

    @contextlib.contextmanager
    def ready(self) -> Iterator[None]:
        try:
            self._make_network()
            if self.small:
                self._make_disks()
            yield
            # What was written to the small file systems comes into the hosts' folders.
            for host, folder, path in self.small:
                self._for_disks("cp", f"{self._container(_KEEPER)}:{_kept(host, folder)}/.", str(path))
                (path / FILLER).unlink(missing_ok=True)
        finally:
            containers = [self._container(host) for host in (*self.job.names, *([_KEEPER] if self.small else []))]
            self._call("rm", "--force", "--volumes", *containers)
            if self.small:
                self._call("volume", "rm", *(self._volume(host, folder) for host, folder, _ in self.small))
            self._call("network", "rm", self._run)

    def command(self, folder: HostFolder) -> HostCommand:
        run = [self._docker, "run", "--name", self._container(folder.host), "--label", LABEL, "--network", self._run]
        if self._hides:  # Docker's name server cannot hide a host, so the names are in files
            hosts = folder.root / "hosts"
            self._hosts_files.write(folder.host, hosts)
            run += ["--ip", self._addresses[folder.host][0], *_mount(hosts, PurePosixPath("/etc/hosts"))]
        else:
            run += ["--network-alias", folder.host]
        if self.shm_size:
            run += ["--shm-size", self.shm_size]
        for part in ("input/config", "input/data", "model", "output", "code"):
            if (folder.host, part, folder.base / part) in self.small:
                run += ["--mount", f"type=volume,source={self._volume(folder.host, part)},target={ML / part}"]
            else:
                run += _mount(folder.base / part, ML / part)
        for path, part, readonly in self.mounts(folder):
            if part.startswith("input/"):  # else Docker would make the folder as root
                (folder.base / part).mkdir()
            run += _mount(path, ML / part, readonly)
        return HostCommand(argv=(*run, *self._variables(), self.image, "train"), environment=self._environment)

    def signal(self, running: Mapping[str, int], number: int) -> None:
        names = [self._container(host) for host in running]
        self._call("kill", "--signal", signal.Signals(number).name, *names)

    def inject(self, fault: Fault, host: str, pid: int) -> bool:
        match fault.action:
            case Action.KILL if not fault.process:
                return self._do(host, "kill", self._container(host))
            case Action.PAUSE if not fault.process:
                return self._do(host, "pause", self._container(host))
            case Action.KILL | Action.STOP | Action.PAUSE:
                return self._send(host, fault.process, SIGNALS[fault.action])
            case Action.HIDE:
                self._hosts_files.hide(host)
                return True
            case Action.CUT:
                return self._silence(host, "on")
            case Action.FILL:
                command = MOUNTS[fault.action].format(_kept(host, fault.folder))
                return self._do(host, "exec", self._container(_KEEPER), "sh", "-c", command)
            case Action.READONLY:
                beside = ["--pid", f"container:{self._container(host)}", *_MAY_MOUNT, "--cap-add", "SYS_PTRACE"]
                command = MOUNTS[fault.action].format(ML / fault.folder)
                enter = ["nsenter", "--target", "1", "--mount", "sh", "-c", command]
                return self._do(host, *_HELPER, *beside, self.image, *enter)
        raise FaultFailed(f"{fault.action} is there from the start")

    def heal(self, fault: Fault, host: str, pid: int | None) -> None:
        if fault.action is Action.HIDE:
            self._hosts_files.hide(host, hidden=False)
        elif fault.action is Action.CUT:
            self._silence(host, "off")
        elif fault.process:
            self._send(host, fault.process, signal.SIGCONT)
        else:
            self._do(host, "unpause", self._container(host))

    def _send(self, host: str, process: str, number: int) -> bool:
        """Signal a process of a container ("": its launcher). Return False if it does not exist yet."""
        where = ["exec", "--interactive", self._container(host)]
        return self._run_module(host, processes, where, process, str(int(number)))

    def _silence(self, host: str, how: str) -> bool:
        beside = ["--network", f"container:{self._container(host)}", "--cap-add", "NET_ADMIN"]
        return self._run_module(host, arp_off, [*_HELPER, *beside, self.image], how)

    def _run_module(self, host: str, module: ModuleType, where: list[str], *words: str) -> bool:
        """Run a module with the Python of a container, of any image. The module imports nothing of ours."""
        return self._do(host, *where, "python", "-I", "-", *words, program=inspect.getsource(module))

    def _do(self, host: str, *words: str, program: str = "") -> bool:
        """Run docker for a fault on a host. Return False if its container does not run, or the target is not there."""
        sent = False
        for _ in range(_LOOKS):  # a container that starts or ends may refuse although it counts as running
            answer = self._call(*words, program=program)
            if answer.returncode in (0, _NOT_YET):
                return not answer.returncode
            sent = sent or answer.stdout.startswith(processes.SENDING.encode())
            state = self._call("inspect", "--format", "{{.State.Running}}", self._container(host))
            if state.stdout.strip() != b"true":
                return sent  # the signal has ended the container
            time.sleep(0.1)
        raise FaultFailed(
            last_line(answer.stderr or answer.stdout, f"docker {words[0]} ended with {answer.returncode}")
        )

    def _of_platform(self, daemon: str) -> str:
        """Return the asked image, by default what ./build.sh makes; on ARM, one of ours for ARM if it has that name."""
        asked = self.image or IMAGE
        if daemon != "linux/arm64" or asked.partition(":")[0] != IMAGE.partition(":")[0]:
            return asked
        images = (asked, asked + OF_ARM) if self.image else (IMAGE + OF_ARM, IMAGE)
        return next((image for image in images if not self._call("image", "inspect", image).returncode), images[0])

    def _make_network(self) -> None:
        """Create the run's network. If addresses must be known before, give it the subnet that Docker would choose."""
        make = ["docker cannot make a network", "network", "create", "--label", LABEL]
        self._must(*make, self._run)
        if self._hides:
            subnet = self._call("network", "inspect", "--format", "{{(index .IPAM.Config 0).Subnet}}", self._run)
            self._call("network", "rm", self._run)
            chosen = subnet.stdout.decode().strip()
            self._must(*make, "--subnet", chosen, self._run)
            first = ipaddress.ip_network(chosen).network_address + _FIRST_ADDRESS
            self._addresses.update({host: [str(first + rank)] for rank, host in enumerate(self.job.names)})

    def _make_disks(self) -> None:
        """Create small file systems in memory, and a container that keeps them while hosts start and end."""
        keeper = self._container(_KEEPER)
        run = ["run", "--detach", "--name", keeper, "--label", LABEL, "--network", "none", *_MAY_MOUNT]
        for host, folder, _ in self.small:
            options = ["--opt", "type=tmpfs", "--opt", "device=tmpfs"]
            self._for_disks("volume", "create", "--label", LABEL, *options, self._volume(host, folder))
            run += ["--mount", f"type=volume,source={self._volume(host, folder)},target={_kept(host, folder)}"]
        self._for_disks(*run, self.image, "sleep", "infinity")
        for host, folder, path in self.small:
            self._for_disks("cp", f"{path}/.", f"{keeper}:{_kept(host, folder)}")

    def _for_disks(self, *words: str) -> None:
        self._must(f"cannot make a disk that can be filled: docker {words[0]} failed", *words)

    def _must(self, problem: str, *words: str) -> subprocess.CompletedProcess[bytes]:
        """Run docker; raise ConfigError, which begins with `problem`, if it fails."""
        if (answer := self._call(*words)).returncode:
            raise ConfigError(f"{problem}: {last_line(answer.stderr, 'no reason given')}")
        return answer

    def _volume(self, host: str, folder: str) -> str:
        return f"{self._container(host)}-{folder}"

    def _container(self, host: str) -> str:
        return f"{self._run}-{host}"

    def _variables(self) -> list[str]:
        """Return options for the hosts' environment: names only, since others can read values in a command line."""
        made = {"TRAINING_JOB_NAME": self.job.name, "ENTRYPOINT_SUMMARY": str(ML / "output" / "summary.json")}
        words = [f"--env={name}={value}" for name, value in made.items()]
        for name, value in self.settings.items():
            words.append(f"--env={name}={value}" if _is_clients(name) else f"--env={name}")
        return words

    def _call(self, *words: str, program: str = "") -> subprocess.CompletedProcess[bytes]:
        """Run docker in a session of its own, so that Ctrl-C reaches us and does not end a clean-up."""
        command = [self._docker, *words]
        try:
            return subprocess.run(
                command, env=self._environment, input=program.encode(), capture_output=True, timeout=PATIENCE_SECONDS,
                start_new_session=True,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            # Printed at once: a clean-up goes on without an answer, and nobody would know why it took so long.
            print(f"docker {words[0]}: no answer in {PATIENCE_SECONDS:g} s", file=sys.stderr, flush=True)
            return subprocess.CompletedProcess(command, 124, b"", f"no answer in {PATIENCE_SECONDS:g} s".encode())


def _kept(host: str, folder: str) -> PurePosixPath:
    return PurePosixPath("/kept") / host / folder


def _is_clients(name: str) -> bool:
    """Return whether a variable for the hosts would also change what the docker command does."""
    return name.startswith("DOCKER_") or name in ("HOME", "PATH")


def _mount(source: Path, target: PurePosixPath, readonly: bool = False) -> list[str]:
    """Return docker's option for a mount, whose value is a line of CSV."""
    parts = ["type=bind", f"source={source}", f"target={target}", *(["readonly"] if readonly else [])]
    quoted = ['"' + part.replace('"', '""') + '"' if any(c in part for c in ',"') else part for part in parts]
    return ["--mount", ",".join(quoted)]
