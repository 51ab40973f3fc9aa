"""Build the images: the peers' on ours; or, on an image with the toolkit, the same with our launcher."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.docker import docker
from benchmarks.side_by_side.cases import BY_HAND, UNWATCHED

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
DOCKERFILE = HERE / "Dockerfile.toolkit"
TOOLKIT = "sagemaker-toolkit-for-comparison"
OURS_ON = "sagemaker-tf-entrypoint-for-comparison"
# As build.sh has them.
CA_VARIABLES = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "AWS_CA_BUNDLE")
BUILD_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "PIP_INDEX_URL")

PACKAGES = (
    "tensorflow", "tensorflow-cpu", "keras", "horovod", "sagemaker-training", "sagemaker-tensorflow-training"
)  # fmt: skip

MADE_OF = {
    "ours": "Debian 12, Python 3.11, TensorFlow 2.14 and Horovod without headers and symbol tables, Open MPI, sshd; "
    "our launcher",
    "toolkit": "the same layers (slimmed as ours are), with sagemaker-training 4.9.0 and sagemaker-tensorflow-training "
    "20.5.0 in our launcher's place, and curl",
    "drivers": "the toolkit's image, with what sagemaker-train 1.27.0 (SDK 3) sends in the channel sm_drivers",
    UNWATCHED: "ours, started with `ENTRYPOINT_MONITOR=false`",
    **dict.fromkeys(BY_HAND, "the toolkit's image, whose launcher is not started"),
}


def build_toolkit(ours: str) -> str:
    """Build the peer image and return its name. Seconds if docker still has its layers, else well under a minute."""
    docker("image", "inspect", "-f", "{{.Id}}", ours)  # raises if it is missing
    with tempfile.TemporaryDirectory(prefix="toolkit-") as context:
        shutil.copy(DOCKERFILE, context)
        if bundle := _ca_bundle():
            shutil.copy(bundle, Path(context) / "ca-bundle.pem")
        arguments = [word for name in BUILD_VARIABLES if os.environ.get(name) for word in ("--build-arg", name)]
        docker(
            "build", "--build-arg", f"OURS={ours}", *arguments, "--tag", TOOLKIT,
            "--file", f"{context}/{DOCKERFILE.name}", context, within=600,
        )  # fmt: skip
    return TOOLKIT


def put_ours_on(image: str) -> str:
    """Put our launcher in the toolkit's place, as a user would, and return the image's name."""
    docker("image", "inspect", "-f", "{{.Id}}", image)  # raises if it is missing
    subprocess.run(
        [str(ROOT / "build.sh"), "--on", image, "--tag", OURS_ON], check=True, stdout=sys.stderr, timeout=1800
    )
    return OURS_ON


def versions(image: str) -> str:
    """Return the versions in an image with the toolkit, as its Python reports them."""
    code = (
        "import sys; from importlib.metadata import distributions as d; "
        "found = {each.metadata['Name'].lower().replace('_', '-'): each.version for each in d()}; "
        f"print('Python', sys.version.split()[0] + ''.join(f', {{n}} {{found[n]}}' for n in {PACKAGES} if n in found))"
    )
    return docker("run", "--rm", "--network", "none", "--entrypoint", "python", image, "-c", code).strip()


def _ca_bundle() -> str | None:
    """Return the certificates to trust while building, for archives behind a private CA; as build.sh finds them."""
    named = [str(ROOT / "ca-bundle.pem"), *(os.environ.get(name, "") for name in CA_VARIABLES)]
    return next((path for path in named if path and Path(path).is_file()), None)


def program(image: str, name: str) -> dict[str, int]:
    """Return what a program takes in an image: its bytes, and those in a registry (gzip, as docker compresses)."""
    script = f'file=$(command -v {name}) && stat -c %s "$file" && gzip -6 -c "$file" | wc -c'
    whole, packed = docker("run", "--rm", "--network", "none", "--entrypoint", "sh", image, "-c", script).split()
    return {"bytes": int(whole), "compressed_bytes": int(packed)}


def described(side: str, image: str, made_of: str = "") -> dict[str, str | int]:
    """Describe an image. `bytes`: what `docker images` shows; `files_bytes`: the files that a container sees."""
    seen = docker("run", "--rm", "--network", "none", "--entrypoint", "du", image, "-sxb", "/").split()[0]
    return {
        "name": image,
        "bytes": int(docker("image", "inspect", "-f", "{{.Size}}", image)),
        "files_bytes": int(seen),
        "made_of": made_of or MADE_OF[side],
    }
