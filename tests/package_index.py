"""Make a package index of tiny packages without a network: wheels, sdists and pages of an index.

As a script, it serves a folder that `make` has filled on 127.0.0.1, as `Server` does.
"""

import base64
import functools
import hashlib
import html
import http.server
import json
import ssl
import sys
import tarfile
import tempfile
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from importlib.metadata import distribution
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

USER, PASSWORD = "me", "geheim"
MODULE = "version = {version!r}\n"
SETUP = "from setuptools import setup\nsetup(name={name!r}, version={version!r}, py_modules=[{module!r}])\n"


@dataclass(frozen=True)
class Package:
    """One version of a package. `sdist`: it has only an sdist, for setuptools; `asks`: its requirements."""

    name: str
    version: str
    asks: tuple[str, ...] = ()
    extras: dict[str, str] = field(default_factory=dict)  # name of an extra -> what it asks for
    sdist: bool = False
    both: bool = False  # a wheel and an sdist
    yanked: bool = False
    python: str = ""  # which Pythons it is for
    module: str = ""  # the text of its only module

    @property
    def folder(self) -> str:
        return self.name.lower().replace("-", "_").replace(".", "_")

    @property
    def metadata(self) -> str:
        lines = ["Metadata-Version: 2.1", f"Name: {self.name}", f"Version: {self.version}"]
        lines += [f"Requires-Dist: {each}" for each in self.asks]
        for extra, asked in self.extras.items():
            lines += [f"Provides-Extra: {extra}", f'Requires-Dist: {asked}; extra == "{extra}"']
        lines += [f"Requires-Python: {self.python}"] if self.python else []
        return "\n".join([*lines, ""])

    @property
    def text(self) -> str:
        return self.module or MODULE.format(version=self.version)

    def write(self, folder: Path) -> list[Path]:
        """Write the package's files into a folder; return them."""
        stem = f"{self.folder}-{self.version}"
        made = []
        if self.sdist or self.both:
            setup = SETUP.format(name=self.name, version=self.version, module=self.folder)
            texts = {"PKG-INFO": self.metadata, "setup.py": setup, f"{self.folder}.py": self.text}
            made.append(folder / f"{stem}.tar.gz")
            with tempfile.TemporaryDirectory() as top, tarfile.open(made[-1], "w:gz") as archive:
                for name, text in texts.items():
                    Path(top, name).write_text(text)
                archive.add(top, stem)
        if not self.sdist:
            tags = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
            info = f"{stem}.dist-info"
            files = {f"{self.folder}.py": self.text, f"{info}/METADATA": self.metadata, f"{info}/WHEEL": tags}
            made.append(write_wheel(folder / f"{stem}-py3-none-any.whl", files))
        return made


def write_wheel(path: Path, files: Mapping[str, str | bytes]) -> Path:
    """Write a wheel of these files, and RECORD; return its path."""
    from wheel.wheelfile import WheelFile  # here, since images that serve an index need not have it

    with WheelFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def of_installed(name: str, folder: Path) -> Path:
    """Write a wheel of an installed package that is Python only, such as setuptools; return its path."""
    found = distribution(name)
    own = [each for each in found.files or () if ".." not in each.parts and "__pycache__" not in each.parts]
    wanted = [each for each in own if each.name not in ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")]
    files = {str(each): each.locate().read_bytes() for each in wanted}
    return write_wheel(folder / f"{name}-{found.version}-py3-none-any.whl", files)


def make(folder: Path, packages: Iterable[Package], tools: Iterable[str] = ()) -> Path:
    """Write an index into the folder: files/, and simple/NAME/index.html. `tools`: installed packages to include."""
    pages: dict[str, list[str]] = {}
    (folder / "files").mkdir(parents=True, exist_ok=True)
    known = [(each.name, file, each) for each in packages for file in each.write(folder / "files")]
    known += [(tool, of_installed(tool, folder / "files"), None) for tool in tools]
    for project, file, package in known:
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        marks = f' data-requires-python="{html.escape(package.python)}"' if package and package.python else ""
        marks += ' data-yanked="it was wrong"' if package and package.yanked else ""
        link = f'<a href="../../files/{file.name}#sha256={digest}"{marks}>{file.name}</a>'
        pages.setdefault(project.lower().replace("_", "-").replace(".", "-"), []).append(link)
    for project, links in pages.items():
        (folder / "simple" / project).mkdir(parents=True, exist_ok=True)
        (folder / "simple" / project / "index.html").write_text(f"<!DOCTYPE html><html>{'<br>'.join(links)}</html>")
    return folder


def write_certificates(folder: Path) -> None:
    """Write ca.pem, and tls.pem, a key with a certificate of that CA for 127.0.0.1."""
    from cryptography import x509  # here, since images that serve an index need not have it
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    def certificate(name: str, public: Any, signer: Any, issuer: str, *more: x509.ExtensionType) -> bytes:
        subject, by = (x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, each)]) for each in (name, issuer))
        now = datetime.now(UTC)
        built = x509.CertificateBuilder(by, subject, public, x509.random_serial_number(), now, now + timedelta(days=2))
        for each in more:
            built = built.add_extension(each, critical=False)
        return built.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    ca, own = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    is_ca, is_none = x509.BasicConstraints(ca=True, path_length=None), x509.BasicConstraints(ca=False, path_length=None)
    key_id = x509.SubjectKeyIdentifier.from_public_key(ca.public_key())
    (folder / "ca.pem").write_bytes(certificate("tests", ca.public_key(), ca, "tests", is_ca, key_id))
    address = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    by_ca = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca.public_key())
    plain = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    key = own.private_bytes(serialization.Encoding.PEM, *plain)
    (folder / "tls.pem").write_bytes(key + certificate("index", own.public_key(), ca, "tests", is_none, address, by_ca))


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serve an index: openly, below /private/ with a password, as a proxy for any host, and as CodeArtifact."""

    def do_POST(self) -> None:
        self.reply({"authorizationToken": PASSWORD})

    def do_GET(self) -> None:
        if self.path.startswith("http://"):  # as a proxy
            self.path = urlsplit(self.path).path
        if self.path.startswith("/v1/repository/endpoint"):
            if "repository=mine" in self.path:
                return self.reply({"repositoryEndpoint": f"http://{self.headers['Host']}/pypi/mine/"})
            return self.reply({"message": "not authorized to perform codeartifact:GetRepositoryEndpoint"}, 403)
        self.path = self.path.replace("/pypi/mine", "")
        if self.path.startswith("/private/"):
            self.path = self.path.removeprefix("/private")
            if self.headers["Authorization"] != f"Basic {base64.b64encode(f'{USER}:{PASSWORD}'.encode()).decode()}":
                return self.reply({"message": "who are you?"}, 401)
        return super().do_GET()

    def reply(self, value: object, status: int = 200) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if status == 401:
            self.send_header("WWW-Authenticate", 'Basic realm="packages"')
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class Server:
    """Serve a folder during the `with` block; with `certificate`, a file of key and certificate, by TLS."""

    def __init__(self, folder: Path, certificate: Path | None = None, address: str = "127.0.0.1") -> None:
        handler = functools.partial(Handler, directory=str(folder))
        self._server = http.server.ThreadingHTTPServer((address, 0), handler)
        self._server.daemon_threads = True
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"http{'s' if certificate else ''}://{address}:{self._server.server_port}"

    def __enter__(self) -> "Server":
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


if __name__ == "__main__":
    with Server(Path(sys.argv[1])) as server:
        print(server.url, flush=True)
        threading.Event().wait()
