"""Test that no layer of the image holds a secret; apart from test_image.py, since it takes long."""

import os
import re
from pathlib import Path

import certifi
import layers
from containers import sh

CA_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT", "AWS_CA_BUNDLE")

# What looks like a secret in some layer and is none: (path, kind, text).
HARMLESS = [
    (r"/libgnutls\.so[.\d]*$", "private key", r""),  # it tests itself with keys known to everyone
    (r"/boto(3|core)/", "AWS access key", r"EXAMPLE$"),
    (r"/(botocore|urllib3/util)/(__pycache__/)?(httpsession|url)\.", "password in a URL", r"username:password@"),
]


def private_certificates() -> set[bytes]:
    """Return a line of each certificate that this machine trusts for the build and that is not a public one."""
    files = {Path(os.environ[name]) for name in CA_VARIABLES if os.environ.get(name)}
    files |= set(Path("/usr/local/share/ca-certificates").rglob("*.crt"))
    mine = {line for file in files if file.is_file() for line in telling_lines(file.read_bytes())}
    public = [Path(certifi.where()), *Path("/usr/share/ca-certificates").rglob("*.crt")]
    return mine.difference(*(telling_lines(file.read_bytes()) for file in public))


def telling_lines(bundle: bytes) -> set[bytes]:
    """Return a line from the middle of each certificate, which no other certificate has."""
    bodies = re.findall(rb"-----BEGIN CERTIFICATE-----\s+([A-Za-z0-9+/=\s]+)-----END", bundle)
    return {lines[len(lines) // 2] for lines in map(bytes.split, bodies)}


def test_no_layer_holds_a_credential(image: str) -> None:
    """`docker save` has every layer, and so also what a later one covers or removes."""
    found, files = layers.search(image, private_certificates())
    assert files > 10_000
    harmful = [
        find
        for find in found
        if not any(
            re.search(path, find.path) and find.kind == kind and re.search(text, find.text)
            for path, kind, text in HARMLESS
        )
    ]
    assert not harmful, "\n".join(map(str, harmful))


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


def test_the_search_finds_what_is_planted_and_removed(image: str, tmp_path: Path) -> None:
    """Otherwise a search that finds nothing would prove nothing."""
    for name, text in PLANTED.items():
        target = tmp_path / "planted" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    (tmp_path / "Dockerfile").write_text("FROM scratch\nCOPY planted /\nCOPY Dockerfile /opt/key.txt\n")
    tag = f"sagemaker-tf-entrypoint-planted:{os.getpid()}"
    sh("docker", "build", "-t", tag, str(tmp_path))
    try:
        found, files = layers.search(tag, [b"THIS-LINE-IS-OF-MY-CERTIFICATE"])
    finally:
        sh("docker", "rmi", "-f", tag)
    assert files == len(PLANTED) + 1
    assert {find.path for find in found} == set(PLANTED)
