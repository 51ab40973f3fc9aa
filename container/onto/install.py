"""Make /opt/sagemaker-tf-entrypoint, with our launcher and its dependencies, for the Python that runs this file.

`packages/` is visible only to our own programs, so that their dependencies (boto3, flask, waitress) neither replace nor
hide the image's; `library/` holds the module for training scripts; `bin/` comes first in PATH.
"""

import compileall
import hashlib
import os
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
from importlib.util import find_spec
from pathlib import Path

BUILD = Path(__file__).resolve().parent
TARGET = Path("/opt/sagemaker-tf-entrypoint")
PACKAGES, LIBRARY, BIN = TARGET / "packages", TARGET / "library", TARGET / "bin"
CA_BUNDLE = BUILD / "ca-bundle.pem"
EXTRAS = ("aws", "monitor", "serving", "tools")  # of pyproject.toml; the image brings its own TensorFlow and MPI
NEED_NOTHING = {"uv", "py-spy"}  # programs of packages that are no Python
CUDA_COMPAT = Path("/usr/local/cuda/compat/libcuda.so.1")
# The image's settings for pip that would change where or what it installs.
MISLEADING = {
    f"PIP_{option}"
    for option in ("USER", "TARGET", "PREFIX", "ROOT", "NO_DEPS", "CONSTRAINT", "REQUIREMENT", "REQUIRE_VIRTUALENV")
}

PROGRAM = """\
#!{python}
import sys

sys.path.insert(0, "{packages}")
from {module} import {function}

{function}()
"""
# It runs the user's inference.py, which must import the image's packages.
SERVE = """\
#!{python}
import sys

sys.path.insert(0, "{packages}")
import flask
import waitress
from entrypoint.serving.__main__ import main

sys.path.remove("{packages}")
main()
"""
PROGRAMS = {
    "train": ("entrypoint.train", "train", PROGRAM),
    "entrypoint": ("entrypoint.cli.main", "main", PROGRAM),
    "serve": ("entrypoint.serving.__main__", "main", SERVE),
}


def main() -> None:
    shutil.rmtree(TARGET, ignore_errors=True)  # an image that already has our launcher
    pyproject = (BUILD / "pyproject.toml").read_text()
    with tempfile.TemporaryDirectory() as scratch:
        install_needed(pyproject, Path(scratch))
    for program in (PACKAGES / "bin").iterdir():  # those made by pip would not find `packages/`
        if program.name not in NEED_NOTHING:
            (shutil.rmtree if program.is_dir() else Path.unlink)(program)
    copy_ours(pyproject)
    compileall.compile_dir(TARGET, quiet=1)  # the job's user may not be able to write here
    BIN.mkdir()
    (PACKAGES / "bin/py-spy").rename(BIN / "py-spy")  # the monitor looks for it in PATH
    for name, (module, function, text) in PROGRAMS.items():
        write(BIN / name, text.format(python=sys.executable, packages=PACKAGES, module=module, function=function))
    write(BIN / "docker-entrypoint", docker_entrypoint())
    subprocess.run([BIN / "entrypoint", "settings"], check=True, stdout=subprocess.DEVNULL)


def copy_ours(pyproject: str) -> None:
    """Copy our modules. They need no build, and pip and setuptools of some images could not build them."""
    version = re.search(r'^version = "(.+)"', pyproject, re.MULTILINE)[1]
    shutil.copytree(BUILD / "entrypoint", PACKAGES / "entrypoint")
    shutil.copytree(BUILD / "sagemaker_tf_data", LIBRARY / "sagemaker_tf_data")
    about = PACKAGES / f"sagemaker_tf_entrypoint-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: sagemaker-tf-entrypoint\nVersion: {version}\n")


def needed(pyproject: str) -> list[str]:
    """Return what our programs need. Python 3.10 has nothing that reads TOML."""
    parts = [pyproject.partition("\ndependencies = [")[2].partition("\n]")[0]]
    parts += [pyproject.partition(f"\n{extra} = [")[2].partition("\n")[0] for extra in EXTRAS]
    return [each for part in parts for each in re.findall(r'"(.+?)"', part)]


def install_needed(pyproject: str, scratch: Path) -> None:
    """Install the dependencies, at the versions of our own image, into the folder that only our programs see."""
    environment = {
        key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "PYTHONHOME", *MISLEADING}
    }
    environment["PIP_ROOT_USER_ACTION"] = "ignore"
    if CA_BUNDLE.is_file():
        environment["PIP_CERT"] = str(CA_BUNDLE)
    if not find_spec("pip"):
        environment["PYTHONPATH"] = str(fetch_pip(scratch))
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-cache-dir", "--disable-pip-version-check"]
    where = ["--no-user", "--target", PACKAGES, "--constraint", BUILD / "requirements.txt"]
    wanted = needed(pyproject)
    if subprocess.run([*pip, *where, *wanted], env=environment, check=False).returncode:
        sys.exit(
            f"error: pip could not install what our launcher needs ({', '.join(wanted)}); it says why above.\n"
            "       Behind a private CA: ./build.sh --ca-bundle FILE; with an index of your own: PIP_INDEX_URL"
        )


def fetch_pip(scratch: Path) -> Path:
    """Download pip's wheel, from which pip can run, for an image without pip. The wheel does not stay in the image."""
    if not (index := os.environ.get("PIP_INDEX_URL")):
        sys.exit(
            f"error: {sys.executable} has no pip, and PIP_INDEX_URL does not say which index has one.\n"
            "       Install pip in the image, or set PIP_INDEX_URL for ./build.sh; it is not left there."
        )
    trust = ssl.create_default_context(cafile=str(CA_BUNDLE) if CA_BUNDLE.is_file() else None)
    page = f"{index.rstrip('/')}/pip/"
    print(f"this Python has no pip: taking one from {urllib.parse.urlsplit(page).hostname}", flush=True)
    try:
        with urllib.request.urlopen(page, context=trust, timeout=60) as answer:
            links = re.findall(
                r'href="([^"]+/pip-([0-9.]+)-py3-none-any\.whl)#sha256=([0-9a-f]{64})"', answer.read().decode()
            )
        link, _, digest = max(links, key=lambda each: [int(number) for number in each[1].split(".") if number])
        with urllib.request.urlopen(urllib.parse.urljoin(page, link), context=trust, timeout=120) as answer:
            content = answer.read()
    except (OSError, ValueError) as error:
        sys.exit(
            f"error: this Python has no pip, and none could be had from that index: {error}. Install pip in the image."
        )
    if hashlib.sha256(content).hexdigest() != digest:
        sys.exit("error: the pip that the index gave is not the one that it names. Install pip in the image.")
    wheel = scratch / Path(urllib.parse.urlsplit(link).path).name
    wheel.write_bytes(content)
    return wheel


def docker_entrypoint() -> str:
    """Return our own image's docker-entrypoint, changed to this folder's programs."""
    text = (BUILD / "docker-entrypoint").read_text().replace("/opt/venv/bin", str(BIN))
    block = "/usr/bin/env --block-signal=TERM"
    if subprocess.run([*block.split(), "true"], check=False, capture_output=True).returncode:
        text = text.replace(f"{block} ", "")  # env of coreutils before 8.31, and of others, lacks the option
    if CUDA_COMPAT.exists():
        shutil.copy(BUILD / "cuda-compat.sh", TARGET)
        text = text.replace("set -eu\n", f"set -eu\n. {TARGET}/cuda-compat.sh\n")
    return text


def write(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


if __name__ == "__main__":
    main()
