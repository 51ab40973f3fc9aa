"""Make a package index of tiny packages on the spot, without a network: wheels, sdists and the pages of an index.

Run by path with a folder that `make` has filled, it serves that folder on 127.0.0.1, as `Server` does.
"""

import base64
import functools
import hashlib
import html
import http.server
import io
import json
import ssl
import sys
import tarfile
import threading
import time
import zipfile
from collections.abc import Iterable
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
    """Describe one version of a package. `sdist`: only that, for setuptools; `asks` are its requirements."""

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

    def files(self) -> dict[str, bytes]:
        """Return its files by name."""
        found = {}
        if self.sdist or self.both:
            found[f"{self.folder}-{self.version}.tar.gz"] = self._sdist()
        if not self.sdist:
            found[f"{self.folder}-{self.version}-py3-none-any.whl"] = self._wheel()
        return found

    def _wheel(self) -> bytes:
        info = f"{self.folder}-{self.version}.dist-info"
        wheel = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        texts = {f"{self.folder}.py": self.text, f"{info}/METADATA": self.metadata, f"{info}/WHEEL": wheel}
        return zipped({name: text.encode() for name, text in texts.items()}, f"{info}/RECORD")

    def _sdist(self) -> bytes:
        top = f"{self.folder}-{self.version}"
        setup = SETUP.format(name=self.name, version=self.version, module=self.folder)
        texts = {"PKG-INFO": self.metadata, "setup.py": setup, f"{self.folder}.py": self.text}
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            for name, text in texts.items():
                info = tarfile.TarInfo(f"{top}/{name}")
                info.size, info.mtime = len(text.encode()), int(time.time())
                archive.addfile(info, io.BytesIO(text.encode()))
        return packed.getvalue()


def zipped(files: dict[str, bytes], record: str) -> bytes:
    """Return a wheel of these files, with their hashes in `record`."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        rows = []
        for name, content in files.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            rows.append(f"{name},sha256={digest},{len(content)}")
            archive.writestr(name, content)
        archive.writestr(record, "\n".join([*rows, f"{record},,", ""]))
    return packed.getvalue()


def of_installed(name: str) -> tuple[str, bytes]:
    """Return name and content of a wheel made of an installed package that is Python only, such as setuptools."""
    found = distribution(name)
    info = f"{name}-{found.version}.dist-info"
    own = [each for each in found.files or () if ".." not in each.parts and "__pycache__" not in each.parts]
    wanted = [each for each in own if each.name not in ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")]
    files = {str(each): each.locate().read_bytes() for each in wanted}
    return f"{name}-{found.version}-py3-none-any.whl", zipped(files, f"{info}/RECORD")


def make(folder: Path, packages: Iterable[Package], tools: Iterable[str] = ()) -> Path:
    """Write an index into the folder: files/, and simple/NAME/index.html. `tools`: installed packages that it has."""
    pages: dict[str, list[str]] = {}
    (folder / "files").mkdir(parents=True, exist_ok=True)
    known = [(each.name, name, content, each) for each in packages for name, content in each.files().items()]
    known += [(tool, *of_installed(tool), None) for tool in tools]
    for project, name, content, package in known:
        (folder / "files" / name).write_bytes(content)
        marks = f' data-requires-python="{html.escape(package.python)}"' if package and package.python else ""
        marks += ' data-yanked="it was wrong"' if package and package.yanked else ""
        link = f'<a href="../../files/{name}#sha256={hashlib.sha256(content).hexdigest()}"{marks}>{name}</a>'
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
    """Serve an index; below /private/ with a password; as a proxy for any host; and as CodeArtifact's own service."""

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
    """Serve a folder while the `with` block runs. With `certificate`, a file with a key as well, by TLS."""

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
