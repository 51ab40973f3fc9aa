"""Serve real wheels as a package index of this machine, as PyPI does: with hashes, metadata and headers for caches.

programs/needs.txt lists them: first those that a requirements.txt names, then their dependencies. Each is there in one
version, the newest that fits the image of line 2.14, so that both sides install the same ones and nothing else changes.
"""

import functools
import hashlib
import re
import socket
import subprocess
import sys
import tempfile
import threading
import zipfile
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

NEEDS = (Path(__file__).parent / "programs/needs.txt").read_text().split()
NAMED = {1: 1, 10: 4, 110: 18}  # packages in all, and how many of them, the first ones, requirements.txt names


def requirements(count: int) -> str:
    """Return a requirements.txt that installs `count` packages."""
    return "".join(f"{need}\n" for need in NEEDS[: NAMED[count]])


class _Handler(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # connections are kept
    disable_nagle_algorithm = True  # else each answer would wait for an acknowledgement

    def end_headers(self) -> None:
        self.send_header("Cache-Control", f"max-age={600 if '/simple/' in self.path else 365000000}, public")
        super().end_headers()

    def log_message(self, *_: object) -> None:
        pass


@functools.cache
def port() -> int:
    """Download the wheels and serve them until this process ends; return the port. The index is at /simple/."""
    folder = _folder()
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-qq", "--no-deps", "-w", f"{folder.name}/files", *NEEDS],
        check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    for wheel in Path(folder.name, "files").glob("*.whl"):
        publish(wheel, Path(folder.name, "simple"))
    server = ThreadingHTTPServer(("", 0), functools.partial(_Handler, directory=folder.name))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_port


@functools.cache
def _folder() -> "tempfile.TemporaryDirectory[str]":
    return tempfile.TemporaryDirectory(prefix="side-index-")


def publish(wheel: Path, simple: Path) -> None:
    """Write a wheel's page, and its metadata beside it (PEP 658)."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(each for each in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", each))
        metadata = archive.read(name)
    wheel.with_name(f"{wheel.name}.metadata").write_bytes(metadata)
    digests = [hashlib.sha256(content).hexdigest() for content in (wheel.read_bytes(), metadata)]
    page = simple / re.sub(r"[-_.]+", "-", wheel.name.split("-")[0]).lower()
    page.mkdir(parents=True)
    (page / "index.html").write_text(
        f'<!DOCTYPE html>\n<a href="/files/{wheel.name}#sha256={digests[0]}" '
        f'data-core-metadata="sha256={digests[1]}">{wheel.name}</a>\n'
    )


@functools.cache
def silent() -> tuple[socket.socket, ...]:
    """Return a socket whose full queue makes the kernel drop packets, and the connections that fill it."""
    server = socket.create_server(("", 0), backlog=0)
    waiting = [socket.socket() for _ in range(2)]
    for each in waiting:
        each.setblocking(False)
        each.connect_ex(("127.0.0.1", server.getsockname()[1]))
    return server, *waiting


@functools.cache
def cache(case: str, side: str) -> "tempfile.TemporaryDirectory[str]":
    """Return the folder that a warm pool's hosts keep between jobs."""
    return tempfile.TemporaryDirectory(prefix="side-cache-")
