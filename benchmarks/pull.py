"""Measure what pulling an image takes: from a registry on loopback into a docker that has none of its layers.

A registry (`docker-registry`) and a second dockerd work in a folder that is removed at the end, so the machine's own
images are not touched. Each image is pushed once; then, in turns, it is pulled and removed. Before each pull, written
data goes to the disk, the page cache is dropped, and what the registry will send is read into it again: a registry
elsewhere has a disk of its own. Docker fetches three layers at a time, and unpacks one after another.

The second docker's folder is a new file system, ext4 with a journal, as new hosts have. Without a journal, ext4 does
not reuse an inode for minutes after its file was removed, and looks at all of these for each new file: 0.5 ms a file.

    python -m benchmarks.pull --json docs/benchmarks/pull.json           # ours and the toolkit's: some 7 minutes
    python -m benchmarks.pull --images 'ours=IMAGE' 'ours, before=OTHER' --ways own unpigz unpigz@85

A way is what expands gzip: `own` for what is in dockerd, `unpigz` for the program of that name, which dockerd takes if
it is on the PATH; and @N for a registry that sends N MB/s on each connection. Needs root, Docker and docker-registry.
"""

import argparse
import http.client
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.docker import docker
from benchmarks.report import pull as page

IMAGES = {"ours": "sagemaker-tf-entrypoint:latest", "toolkit": "sagemaker-toolkit-for-comparison:latest"}
MANIFESTS = ("application/vnd.docker.distribution.manifest.v2+json", "application/vnd.oci.image.manifest.v1+json")
LONGEST = 900.0  # seconds for one push or pull
DISK = 16 << 30  # bytes; of the largest image, its layers as they were fetched and unpacked
REGISTRY = """
version: 0.1
log: {level: error, accesslog: {disabled: true}}
storage: {filesystem: {rootdirectory: %s}}
http: {addr: '127.0.0.1:%d'}
"""


def main() -> None:
    parser = machine.parser(__doc__, rounds=3)
    images = [f"{name}={image}" for name, image in IMAGES.items()]
    parser.add_argument("--images", nargs="+", default=images, metavar="NAME=IMAGE", help=f"default: {images}")
    ways = [Way("own"), *([Way("unpigz")] if shutil.which("unpigz") else [])]
    parser.add_argument("--ways", nargs="+", type=Way.read, default=ways, help=f"here: {' '.join(map(str, ways))}")
    given = parser.parse_args()
    for each in ("docker-registry", "dockerd", *({way.decompressor for way in given.ways} - {"own"})):
        if not shutil.which(each):
            sys.exit(f"pull: no {each} on the PATH; on Debian: apt-get install docker-registry docker.io pigz")
    for each in (signal.SIGTERM, signal.SIGINT):  # a job in the background ignores SIGINT, and nothing is to be left
        signal.signal(each, lambda number, _: sys.exit(128 + number))
    record = machine.head("pull", limits={"rounds": given.rounds})
    with ExitStack() as stack:
        measure(stack, dict(each.rsplit("=", 1) for each in given.images), given, record)
    print("\n".join(page.table(record)))


def measure(stack: ExitStack, images: dict[str, str], given: argparse.Namespace, record: dict[str, Any]) -> None:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pull-")))
    registry = stack.enter_context(run_registry(folder / "registry"))
    ports = {way: stack.enter_context(slowed(registry, way.rate)) if way.rate else registry for way in given.ways}
    found, held = {}, {}
    for number, (name, image) in enumerate(images.items()):
        held[name] = f"pull/{number}"
        push(image, f"127.0.0.1:{registry}/{held[name]}:1")
        manifest = read_manifest(registry, held[name])
        found[name] = {"image": image, **sizes(manifest), **unpacked(image)}
        print(name, found[name], file=sys.stderr, flush=True)
    record["images"] = found
    daemons = {}
    for decompressor in dict.fromkeys(way.decompressor for way in given.ways):
        stack.enter_context(new_disk(folder / decompressor))
        daemons[decompressor] = stack.enter_context(run_daemon(folder / decompressor, decompressor))
    for number in range(given.rounds):
        for way in given.ways:
            for name in machine.turned(images, number):
                warm_only(folder / "registry", read_manifest(registry, held[name]))
                load = machine.load()
                measures = pull(daemons[way.decompressor], f"127.0.0.1:{ports[way]}/{held[name]}:1")
                record["runs"].append(
                    {"image": name, "way": str(way), "round": number + 1, "load": load, "measures": measures}
                )
                print(record["runs"][-1], file=sys.stderr, flush=True)
                record["pull_s"] = summary(record["runs"])
                if given.json:
                    machine.write(given.json, record)


@dataclass(frozen=True)
class Way:
    """What expands gzip, and the MB/s of each connection to the registry; 0: as many as there are."""

    decompressor: str
    rate: float = 0

    @classmethod
    def read(cls, text: str) -> "Way":
        decompressor, _, rate = text.partition("@")
        if decompressor not in ("own", "unpigz"):
            raise argparse.ArgumentTypeError(f"found {text!r}; wanted own or unpigz, and @MB/s or nothing")
        return cls(decompressor, float(rate or 0))

    def __str__(self) -> str:
        return f"{self.decompressor}@{self.rate:g}" if self.rate else self.decompressor


# ---- the images ------------------------------------------------------------------------------------------------------


def push(image: str, name: str) -> None:
    docker("tag", image, name)
    try:
        docker("push", "--quiet", name, within=LONGEST)
    finally:
        docker("rmi", "--no-prune", name, check=False)


def read_manifest(port: int, name: str) -> dict[str, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", f"/v2/{name}/manifests/1", headers={"Accept": ", ".join(MANIFESTS)})
    manifest: dict[str, Any] = json.loads(connection.getresponse().read())
    return manifest


def sizes(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return what a registry holds of an image: its layers, and its description."""
    layers = [layer["size"] for layer in manifest["layers"]]
    return {
        "compressed_bytes": sum(layers) + manifest["config"]["size"],
        "layers": len(layers),
        "largest_layer_bytes": max(layers),
        "layer_bytes": layers,
    }


def unpacked(image: str) -> dict[str, int]:
    """Return the bytes that `docker images` shows, and how many files a container sees."""
    counted = docker(
        "run", "--rm", "--network", "none", "--entrypoint", "sh", image, "-c", "find / -xdev -type f | wc -l"
    )
    return {"bytes": int(docker("image", "inspect", "-f", "{{.Size}}", image)), "files": int(counted)}


# ---- a pull ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Daemon:
    socket: Path
    pid: int

    def worked(self) -> float:
        """Return processor seconds of it and of its children that have ended: those that unpack a layer."""
        words = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, words[11:15])) / os.sysconf("SC_CLK_TCK")


def pull(daemon: Daemon, name: str) -> dict[str, float]:
    """Pull, start a container for the first time, and remove all layers again."""
    before, began = daemon.worked(), time.monotonic()
    events = [(at - began, event) for at, event in pulling(daemon.socket, name)]
    pulled, worked = time.monotonic(), daemon.worked() - before
    host = ("--host", f"unix://{daemon.socket}")
    docker(*host, "run", "--rm", "--network", "none", "--entrypoint", "true", name)
    first = time.monotonic() - pulled
    docker(*host, "rmi", name, within=LONGEST)
    if left := docker(*host, "images", "--all", "--quiet"):
        raise RuntimeError(
            f"the image of {name} was removed and {left.split()} are left; the next pull would not be cold"
        )
    measures = {"pull_s": pulled - began, **parts(events), "cpu_s": worked, "first_run_s": first}
    return {measure: round(value, 3) for measure, value in measures.items()}


class OverUnix(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=LONGEST)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self.path))


def pulling(daemon: Path, name: str) -> Iterator[tuple[float, dict[str, Any]]]:
    """Yield each line that the engine prints of a pull, with its time."""
    connection = OverUnix(daemon)
    image, _, tag = name.rpartition(":")
    connection.request("POST", f"/images/create?fromImage={image}&tag={tag}")
    answer = connection.getresponse()
    for line in answer:
        event = json.loads(line)
        if answer.status != 200 or "error" in event:
            raise RuntimeError(f"the pull of {name} failed: {event}")
        yield time.monotonic(), event
    connection.close()


def parts(events: Iterable[tuple[float, dict[str, Any]]]) -> dict[str, float]:
    """Return seconds until the last layer was fetched, and in which any was unpacked: the two go on side by side."""
    layers: set[str] = set()
    begun: dict[str, float] = {}  # unpacking
    fetched = unpacking = done = 0.0
    for at, event in events:
        layer, status = event.get("id", ""), event["status"]
        if status == "Pulling fs layer":
            layers.add(layer)
        elif layer in layers and status == "Download complete":
            fetched = at
        elif layer in layers and status == "Extracting":
            begun.setdefault(layer, at)
        elif layer in layers and status == "Pull complete":
            # One after another. The engine may never report a small layer as unpacked.
            unpacking += at - max(begun.get(layer, at), done)
            done = at
    return {"download_s": fetched, "unpack_s": unpacking}


def summary(runs: list[dict[str, Any]]) -> dict[str, dict[str, dict[str, float]]]:
    """Return {image: {way: median, least and most of all rounds}}."""
    found: dict[str, dict[str, list[float]]] = {}
    for run in runs:
        found.setdefault(run["image"], {}).setdefault(run["way"], []).append(run["measures"]["pull_s"])
    return {
        image: {
            way: {"median": round(statistics.median(each), 3), "min": min(each), "max": max(each)}
            for way, each in ways.items()
        }
        for image, ways in found.items()
    }


def warm_only(registry: Path, manifest: dict[str, Any]) -> None:
    """Drop all of the page cache but what the registry is going to send."""
    os.sync()
    with suppress(OSError):  # not in every container
        Path("/proc/sys/vm/drop_caches").write_text("3\n")
    for each in (manifest["config"], *manifest["layers"]):
        algorithm, _, digest = each["digest"].partition(":")
        with (registry / f"docker/registry/v2/blobs/{algorithm}/{digest[:2]}/{digest}/data").open("rb") as blob:
            while blob.read(1 << 22):
                pass


# ---- the registry and the second docker ------------------------------------------------------------------------------


@contextmanager
def run_registry(folder: Path) -> Iterator[int]:
    """Run a registry; yield its port."""
    folder.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    config = folder.with_suffix(".yml")
    config.write_text(REGISTRY % (folder, port))
    with running(["docker-registry", "serve", str(config)], config.with_suffix(".log")) as process:
        until(process, lambda: socket.create_connection(("127.0.0.1", port), 1).close())
        yield port


@contextmanager
def new_disk(folder: Path) -> Iterator[None]:
    folder.mkdir()
    disk = folder.with_suffix(".ext4")
    with disk.open("wb") as file:
        file.truncate(DISK)  # takes as much as is written
    # All that the kernel would else do in the background, while a pull is measured.
    subprocess.run(["mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", str(disk)], check=True)
    subprocess.run(["mount", "-o", "loop", str(disk), str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=False)
        disk.unlink()


@contextmanager
def run_daemon(folder: Path, decompressor: str) -> Iterator[Daemon]:
    """Run a dockerd with nothing in it, and no network of its own; yield it."""
    path = folder / "socket"
    # The namespaces: where the machine has a containerd of its own, dockerd takes that.
    command = ["dockerd", "--data-root", f"{folder}/data", "--exec-root", f"{folder}/exec", "--host", f"unix://{path}"]
    # The machine's own bridge, which nothing here uses: with none, dockerd would remove it from under the other one.
    bridge = "docker0" if Path("/sys/class/net/docker0").exists() else "none"
    command += ["--pidfile", f"{folder}/pid", "--bridge", bridge, "--iptables=false", "--ip-forward=false"]
    command += [
        "--containerd-namespace",
        folder.parent.name,
        "--containerd-plugins-namespace",
        f"{folder.parent.name}-p",
    ]
    own = {} if decompressor == "unpigz" else {"MOBY_DISABLE_PIGZ": "true"}
    try:
        with running(command, folder / "log", own) as process:
            until(process, lambda: docker("--host", f"unix://{path}", "version", within=10))
            yield Daemon(path, process.pid)
    finally:
        mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
        for mount in reversed([each for each in mounts if folder in Path(each).parents]):
            subprocess.run(["umount", "--lazy", mount], check=False)


@contextmanager
def running(command: list[str], log: Path, more: dict[str, str] | None = None) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a program in a process group of its own; end it with all that it started."""
    with log.open("wb") as said:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
            env=os.environ | (more or {}),
        )
        try:
            yield process
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(60)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def until(process: "subprocess.Popen[bytes]", answers: Any) -> None:
    ends = time.monotonic() + 60
    while True:
        try:
            answers()
            return
        except (OSError, RuntimeError) as error:
            if process.poll() is not None or time.monotonic() > ends:
                raise RuntimeError(f"{process.args!r} does not answer: {error}") from None
            time.sleep(0.1)


@contextmanager
def slowed(port: int, rate: float) -> Iterator[int]:
    """Yield a port that leads to that one, and sends `rate` MB/s on each connection, as a distant registry does."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        threading.Thread(target=_accept, args=(server, port, rate * 1e6), daemon=True).start()
        yield server.getsockname()[1]


def _accept(server: socket.socket, port: int, rate: float) -> None:
    with suppress(OSError):  # it is closed at the end
        while True:
            client, _ = server.accept()
            upstream = socket.create_connection(("127.0.0.1", port))
            threading.Thread(target=_copy, args=(client, upstream, 0), daemon=True).start()
            threading.Thread(target=_copy, args=(upstream, client, rate), daemon=True).start()


def _copy(source: socket.socket, sink: socket.socket, rate: float) -> None:
    due = time.monotonic()
    with suppress(OSError):
        while data := source.recv(1 << 18):
            sink.sendall(data)
            if rate:
                due = max(due, time.monotonic() - 0.05) + len(data) / rate
                time.sleep(max(0.0, due - time.monotonic()))
    for each in (source, sink):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


if __name__ == "__main__":
    main()
