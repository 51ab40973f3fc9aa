"""Call Docker compose of both generations: Docker's own v2, and 1.29, which Debian has."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OURS = ROOT / ".venv-sdk-compose"  # made by tests/get_compose.sh where the machine's own docker has no compose


@dataclass(frozen=True, kw_only=True)
class Compose:
    """A command of Docker compose, and how to call it."""

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)

    def variables(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return this process's environment without compose's own variables, plus the given ones."""
        ours = {name: value for name, value in os.environ.items() if not name.startswith("COMPOSE_")}
        return {**ours, **self.environment, **(more or {})}


@cache
def generations() -> dict[str, Compose]:
    """Return the generations that this machine has, by name, the newer one first."""
    found = {}
    for environment in ({}, {"DOCKER_CONFIG": str(OURS)}):
        if "v2" not in found:
            new = Compose(command=("docker", "compose"), environment=environment)
            if _works(new):
                found["v2"] = new
    # It gives a busy daemon a minute else, which those who call it give longer.
    old = Compose(command=("docker-compose",), environment={"COMPOSE_HTTP_TIMEOUT": "240"})
    if shutil.which("docker-compose") and "1.29" in _version(old):
        found["1.29"] = old
    return found


def the_compose() -> Compose:
    """Return the generation for tests that need no specific one; AssertionError if there is none."""
    assert generations(), "there is no docker compose; tests/get_compose.sh gets it"
    return next(iter(generations().values()))


def _works(compose: Compose) -> bool:
    return "version" in _version(compose)


def _version(compose: Compose) -> str:
    answer = subprocess.run(
        [*compose.command, "version"],
        env=compose.variables(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return answer.stdout if answer.returncode == 0 else ""
