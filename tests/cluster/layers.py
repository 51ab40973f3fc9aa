"""Search every layer of an image for keys, tokens and credentials, also in files that a later layer removes."""

import re
import subprocess
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

# kind: texts of which one must be in the file for the pattern to be tried, and the pattern
_PATTERNS = {
    # A key has base64 after its header; code that reads keys has the header alone.
    "private key": (
        (b"PRIVATE KEY-----",),
        rb"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----\s+(?:[A-Za-z-]+: [^\n]*\n)*\s*[A-Za-z0-9+/=]{40,}",
    ),
    "PuTTY key": ((b"PuTTY-User-Key-File",), rb"PuTTY-User-Key-File-\d: \S+\r?\nEncryption"),
    "AWS access key": ((b"AKIA", b"ASIA"), rb"(?<![A-Za-z0-9/+])(?:AKIA|ASIA)[A-Z2-7]{16}(?![A-Za-z0-9/+])"),
    "AWS secret key": (
        (b"ecret_access_key", b"ECRET_ACCESS_KEY"),
        rb"(?i:secret_access_key)[\"']?\s*[=:]\s*[\"']?[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=])",
    ),
    "GitHub token": (
        (b"ghp_", b"gho_", b"ghu_", b"ghs_", b"ghr_", b"github_pat_"),
        rb"(?<![A-Za-z0-9])(?:gh[pousr]_[A-Za-z0-9]{36}|github_pat_[A-Za-z0-9_]{60,})(?![A-Za-z0-9])",
    ),
    "Slack token": ((b"xox",), rb"xox[abprs]-[0-9]{8,}-[A-Za-z0-9-]{10,}"),
    "Google key": ((b"AIza",), rb"AIza[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])"),
    "Hugging Face token": ((b"hf_",), rb"(?<![A-Za-z0-9_])hf_[A-Za-z]{34}(?![A-Za-z0-9])"),
    "PyPI token": ((b"pypi-AgEI",), rb"pypi-AgEI[A-Za-z0-9_-]{50,}"),
    "netrc": ((b"machine ",), rb"(?m)^machine \S+ login \S+ password \S+"),
    "registry login": ((b'"auths"',), rb'"auths"\s*:\s*\{[^}]*"auth"\s*:\s*"[A-Za-z0-9+/=]{8,}"'),
    "password in a URL": ((b"https://", b"http://"), rb"https?://[\w.%-]+:[^@\s/\"'<>{}$*]{4,}@[\w.-]+"),
}
_COMPILED = {kind: (hints, re.compile(pattern)) for kind, (hints, pattern) in _PATTERNS.items()}
_LONGEST_TEXT = 1 << 20  # bytes; URLs are looked for in files of that size
_AROUND = 1 << 13  # bytes before and behind a hint in which a pattern is tried in longer files

_NAMES = re.compile(
    r"(^|/)(ssh_host_[^/]+|id_(rsa|dsa|ecdsa|ed25519)[^/]*|authorized_keys|known_hosts|[._]netrc|\.pypirc|\.npmrc"
    r"|\.git-credentials|\.aws/.+|\.docker/config\.json|\.kube/.+|\.env|\.pip/pip\.conf|pip\.conf|[^/]+\.(key|p12|pfx|ppk))$"
)

# Docker lays empty ones over them in every container, `docker export` and `docker cp` included: layers alone show them.
_OF_THIS_MACHINE = {
    path: Path("/", path).read_bytes()
    for path in ("etc/hostname", "etc/hosts", "etc/resolv.conf")
    if Path("/", path).is_file()
}


@dataclass(frozen=True)
class Find:
    """Something that should be in no layer."""

    layer: str
    path: str
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.path} of layer {self.layer[:12]}: {self.kind} {self.text!r}"


def search(image: str, others: Iterable[bytes] = ()) -> tuple[list[Find], int]:
    """Return (what was found in all layers, number of files searched).

    `others`: texts that must not be there either.
    """
    found: list[Find] = []
    count = 0
    for layer, path, data in _files(image):
        count += 1
        found += [Find(layer, path, kind, text) for kind, text in _suspicious(path, data, others)]
    return found, count


def _files(image: str) -> Iterator[tuple[str, str, bytes]]:
    """Yield (layer, path, contents) of every file. Layers are named as by `docker save`, in any of its forms."""
    with subprocess.Popen(["docker", "save", image], stdout=subprocess.PIPE) as save:
        with tarfile.open(fileobj=save.stdout, mode="r|") as archive:
            for member in archive:
                if not member.isfile() or member.name.endswith(
                    (".json", "/json", "VERSION", "repositories", "oci-layout")
                ):
                    continue
                try:
                    with tarfile.open(fileobj=archive.extractfile(member), mode="r|*") as layer:
                        yield from _files_of(layer, member.name.removesuffix("/layer.tar"))
                except tarfile.ReadError:
                    continue  # a configuration
        assert save.wait() == 0


def _files_of(layer: tarfile.TarFile, name: str) -> Iterator[tuple[str, str, bytes]]:
    for each in layer:
        if each.isfile():
            yield name, each.name, layer.extractfile(each).read()
        elif _NAMES.search(each.name):  # a link, say
            yield name, each.name, b""


def _matches(data: bytes, hints: Iterable[bytes], pattern: re.Pattern[bytes]) -> Iterator[bytes]:
    """Return the matches.

    In long files, search only near a pattern's hints: searching everywhere takes ten times as long.
    """
    if len(data) <= _LONGEST_TEXT:
        if any(hint in data for hint in hints):
            yield from (match[0] for match in pattern.finditer(data))
        return
    for hint in hints:
        at = data.find(hint)
        while at >= 0:
            yield from (match[0] for match in pattern.finditer(data[max(0, at - _AROUND) : at + 2 * _AROUND]))
            at = data.find(hint, at + _AROUND)


def _suspicious(path: str, data: bytes, others: Iterable[bytes]) -> Iterator[tuple[str, str]]:
    if _NAMES.search(path):
        yield "name", path
    if data and data == _OF_THIS_MACHINE.get(path.removeprefix("./")):
        yield "file of the build's machine", path
    for kind, (hints, pattern) in _COMPILED.items():
        if kind == "password in a URL" and len(data) > _LONGEST_TEXT:
            continue
        for text in _matches(data, hints, pattern):
            yield kind, text.decode("utf-8", "replace")[:120]
    for other in others:
        if other in data:
            yield "text of the build's machine", other.decode("utf-8", "replace")[:120]
