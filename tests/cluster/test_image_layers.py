"""Test that no layer of the image holds a key, a token or a credential, nor a file that a later layer removes.

This is a separate file since it takes long.
"""

import contextlib
import os
import re
import subprocess
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import certifi
from containers import sh

# kind: texts of which one must be in the file for the pattern to be tried, and the pattern
PATTERNS = {
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
LONGEST_TEXT = 1 << 20  # bytes; URLs are looked for in files of that size
AROUND = 1 << 13  # bytes before and behind a hint in which a pattern is tried in longer files
NAMES = re.compile(
    r"(^|/)(ssh_host_[^/]+|id_(rsa|dsa|ecdsa|ed25519)[^/]*|authorized_keys|known_hosts|[._]netrc|\.pypirc|\.npmrc"
    r"|\.git-credentials|\.aws/.+|\.docker/config\.json|\.kube/.+|\.env|\.pip/pip\.conf|pip\.conf|[^/]+\.(key|p12|pfx|ppk))$"
)

# Docker lays empty ones over them in every container, `docker export` and `docker cp` included: layers alone show them.
OF_THIS_MACHINE = {
    path: Path("/", path).read_bytes()
    for path in ("etc/hostname", "etc/hosts", "etc/resolv.conf")
    if Path("/", path).is_file()
}
CA_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT", "AWS_CA_BUNDLE")

# What looks like a secret in some layer and is none: (path, kind, text).
HARMLESS = [
    (r"/libgnutls\.so[.\d]*$", "private key", r""),  # it tests itself with keys known to everyone
    (r"/boto(3|core)/", "AWS access key", r"EXAMPLE$"),
    (r"/(botocore|urllib3/util)/(__pycache__/)?(httpsession|url)\.", "password in a URL", r"username:password@"),
]


class Find(NamedTuple):
    """A match that should be in no layer."""

    layer: str
    path: str
    kind: str
    text: str


def search(image: str, others: Iterable[bytes] = ()) -> tuple[list[Find], int]:
    """Return (what was found in all layers, number of files searched).

    `others`: further forbidden texts.
    """
    found: list[Find] = []
    count = 0
    for layer, path, data in files_of(image):
        count += 1
        found += [Find(layer, path, kind, text) for kind, text in suspicious(path, data, others)]
    return found, count


def files_of(image: str) -> Iterator[tuple[str, str, bytes]]:
    """Yield (layer, path, contents) of every file. Layers are named as by `docker save`, in any of its forms."""
    with subprocess.Popen(["docker", "save", image], stdout=subprocess.PIPE) as save:
        with tarfile.open(fileobj=save.stdout, mode="r|") as archive:
            for member in archive:
                # Whatever is no archive is a configuration.
                with contextlib.suppress(tarfile.ReadError):
                    if not member.isfile():
                        continue
                    with tarfile.open(fileobj=archive.extractfile(member), mode="r|*") as layer:
                        for each in layer:
                            if each.isfile():
                                yield member.name, each.name, layer.extractfile(each).read()
                            elif NAMES.search(each.name):  # a link, say
                                yield member.name, each.name, b""
        assert save.wait() == 0


def matches(data: bytes, hints: Iterable[bytes], pattern: bytes) -> Iterator[bytes]:
    """Return all forbidden matches in a file.

    In long files, search only near a pattern's hints: searching everywhere takes ten times as long.
    """
    if len(data) <= LONGEST_TEXT:
        if any(hint in data for hint in hints):
            yield from (match[0] for match in re.finditer(pattern, data))
        return
    for hint in hints:
        at = data.find(hint)
        while at >= 0:
            yield from (match[0] for match in re.finditer(pattern, data[max(0, at - AROUND) : at + 2 * AROUND]))
            at = data.find(hint, at + AROUND)


def suspicious(path: str, data: bytes, others: Iterable[bytes]) -> Iterator[tuple[str, str]]:
    if NAMES.search(path):
        yield "name", path
    if data and data == OF_THIS_MACHINE.get(path.removeprefix("./")):
        yield "file of the build's machine", path
    for kind, (hints, pattern) in PATTERNS.items():
        if kind == "password in a URL" and len(data) > LONGEST_TEXT:
            continue
        for text in matches(data, hints, pattern):
            yield kind, text.decode("utf-8", "replace")[:120]
    for other in others:
        if other in data:
            yield "text of the build's machine", other.decode("utf-8", "replace")[:120]


def is_harmless(find: Find) -> bool:
    return any(
        re.search(path, find.path) and find.kind == kind and re.search(text, find.text) for path, kind, text in HARMLESS
    )


def private_certificates() -> set[bytes]:
    """Return a line of each private certificate that this machine trusts for the build."""
    files = {Path(os.environ[name]) for name in CA_VARIABLES if os.environ.get(name)}
    files |= set(Path("/usr/local/share/ca-certificates").rglob("*.crt"))
    mine = {line for file in files if file.is_file() for line in telling_lines(file.read_bytes())}
    public = [Path(certifi.where()), *Path("/usr/share/ca-certificates").rglob("*.crt")]
    return mine.difference(*(telling_lines(file.read_bytes()) for file in public))


def telling_lines(bundle: bytes) -> set[bytes]:
    """Return a unique line from the middle of each certificate."""
    bodies = re.findall(rb"-----BEGIN CERTIFICATE-----\s+([A-Za-z0-9+/=\s]+)-----END", bundle)
    return {lines[len(lines) // 2] for lines in map(bytes.split, bodies)}


def test_no_layer_holds_a_credential(image: str) -> None:
    """The search covers every layer of `docker save`, with the files that a later layer covers or removes."""
    found, files = search(image, private_certificates())
    assert files > 10_000
    assert not [find for find in found if not is_harmless(find)]


PLANTED = {
    "root/.ssh/id_ed25519": "x",
    "etc/ssh/ssh_host_rsa_key": "x",
    "root/.netrc": "machine pypi.example.com login me password Zq7Lw0Xk",
    "etc/hosts": Path("/etc/hosts").read_text(),
    "etc/pip.conf": "[global]\nindex-url = https://me:Zq7Lw0Xk@pypi.example.com/simple\n",
    "root/.aws/credentials": "[default]\naws_secret_access_key = " + "a1B2" * 10,
    "root/.docker/config.json": '{"auths": {"r.example.com": {"auth": "bWU6WnE3THcwWGs="}}}',
    "opt/key.txt": "-----BEGIN OPENSSH PRIVATE KEY-----\n" + "a1B2" * 16 + "\n-----END OPENSSH PRIVATE KEY-----\n",
    "opt/aws.txt": "AKIA" + "Q7" * 8 + "\n",
    "opt/github.txt": "ghp_" + "a1B2" * 9 + "\n",
    "opt/ca.txt": "x\nTHIS-LINE-IS-OF-MY-CERTIFICATE\n",
}


def test_search_finds_a_credential_that_a_later_layer_removes(image: str, tmp_path: Path) -> None:
    """This shows that the search of the other test can find a credential."""
    for name, text in PLANTED.items():
        target = tmp_path / "planted" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    (tmp_path / "Dockerfile").write_text("FROM scratch\nCOPY planted /\nCOPY Dockerfile /opt/key.txt\n")
    tag = f"sagemaker-tf-entrypoint-planted:{os.getpid()}"
    sh("docker", "build", "-t", tag, str(tmp_path))
    try:
        found, files = search(tag, [b"THIS-LINE-IS-OF-MY-CERTIFICATE"])
    finally:
        sh("docker", "rmi", "-f", tag)
    assert files == len(PLANTED) + 1
    assert {find.path for find in found} == set(PLANTED)
