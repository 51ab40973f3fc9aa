"""Build and remove images for tests: stand-ins for other people's images, and images of ./build.sh --on on them."""

import os
import re
import subprocess
import tempfile
import uuid
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from containers import sh
from waiting import locked

ROOT = Path(__file__).resolve().parents[2]
DEFAULT_LINE = re.search(r"^readonly DEFAULT_LINE=(.+)$", (ROOT / "build.sh").read_text(), re.MULTILINE).group(1)
# Of container/lines, which the image under test is of: 2.21; or 2.21-gpu or 2.21-arm64 for one that is for these.
LINE, _, DEVICE = os.environ.get("TEST_LINE", DEFAULT_LINE).partition("-")
GPU, ARM64 = DEVICE == "gpu", DEVICE == "arm64"
BUILD = 1200.0  # seconds: when to give up


def one_at_a_time() -> AbstractContextManager[None]:
    """Keep other test processes from building, since build.sh temporarily adds files to the sources."""
    return locked(Path(tempfile.gettempdir()) / "sagemaker-tf-entrypoint-builds.lock")


class Images:
    """Images that are built during the `with` block, and removed at its end."""

    def __init__(self) -> None:
        self._mark, self._built = uuid.uuid4().hex[:8], []

    def __enter__(self) -> "Images":
        return self

    def __exit__(self, *_: object) -> None:
        for name in dict.fromkeys(reversed(self._built)):  # those that were not built, too
            sh("docker", "rmi", "--force", name, check=False)

    def build(self, dockerfile: str, **arguments: str) -> str:
        """Build the text of a Dockerfile without a context; return the image's name."""
        name = self._name("stand-in")
        command = ["docker", "build", "--quiet", "--tag", name]
        for key in (*arguments, "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"):
            if value := arguments.get(key, os.environ.get(key)):
                command += ["--build-arg", f"{key}={value}"]
        done = subprocess.run([*command, "-"], input=dockerfile, capture_output=True, text=True, timeout=BUILD)
        assert done.returncode == 0, done.stdout + done.stderr
        return name

    def on(self, image: str, *options: str, **more: Any) -> tuple[str, str]:
        """Put our entrypoint onto an image by build.sh; return the new image's name and the output of build.sh."""
        name = self._name("onto")
        done = self.try_on(image, "--tag", name, *options, **more)
        assert done.returncode == 0, done.stdout + done.stderr
        self._built += [word for word in done.stdout.splitlines()[-1].split() if word.startswith("sagemaker-tf-")]
        return name, done.stdout

    def try_on(self, image: str, *options: str, **more: Any) -> subprocess.CompletedProcess[str]:
        with one_at_a_time():
            return sh(str(ROOT / "build.sh"), "--on", image, *options, within=BUILD, check=False, **more)

    def _name(self, what: str) -> str:
        self._built.append(f"tfe-{what}-{self._mark}-{len(self._built)}")
        return self._built[-1]
