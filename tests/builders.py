"""Make config folders and Jobs for tests from a few values."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from entrypoint.launcher.job.config import read_job
from entrypoint.launcher.job.job import Job

PROGRAM = {"sagemaker_program": "train.py"}


def names(count: int) -> list[str]:
    return [f"algo-{number + 1}" for number in range(count)]


def resources(hosts: list[str], me: str = "", **more: Any) -> dict[str, Any]:
    return {"current_host": me or hosts[0], "hosts": hosts, "network_interface_name": "lo", **more}


def write_config(base: Path, resource_config: Any, hyperparameters: Any = None, channels: Any = None) -> Path:
    """Write the config files; a str is written unchanged, None omits the file."""
    config = base / "input" / "config"
    config.mkdir(parents=True, exist_ok=True)
    files = {"resourceconfig": resource_config, "hyperparameters": hyperparameters, "inputdataconfig": channels}
    for name, content in files.items():
        if content is not None:
            text = content if isinstance(content, str) else json.dumps(content)
            (config / f"{name}.json").write_text(text)
    return base


def read(
    base: Path,
    hosts: int | list[str] = 1,
    hyperparameters: Mapping[str, Any] | str | None = None,
    environment: Mapping[str, str] | None = None,
    *,
    me: str = "",
    gpus: int = 0,
    groups: Mapping[str, list[str]] | None = None,
    channels: Any = "{}",
) -> Job:
    """Return the Job of a host of a cluster. Hyperparameters are as in the file, including the program."""
    listing = [{"instance_group_name": name, "hosts": members} for name, members in (groups or {}).items()]
    listed = names(hosts) if isinstance(hosts, int) else hosts
    if not isinstance(hyperparameters, str):
        hyperparameters = {**PROGRAM, **(hyperparameters or {})}
    write_config(base, resources(listed, me, instance_groups=listing), hyperparameters, channels)
    return read_job(base, environment or {}, base / "run", gpus)


def write_files(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    """Write files by their names below a folder, and make the folders that they need."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


# A package that is built by a few lines of its own: no network, no setuptools, and none of pip's settings.
BACKEND = """
import zipfile

def build_wheel(folder, config_settings=None, metadata_directory=None):
    name = "NAME-1-py3-none-any.whl"
    with zipfile.ZipFile(f"{folder}/{name}", "w") as wheel:
        wheel.write("NAME.py")
        wheel.writestr("NAME-1.dist-info/METADATA", "Metadata-Version: 2.1\\nName: NAME\\nVersion: 1\\n")
        wheel.writestr("NAME-1.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr("NAME-1.dist-info/RECORD", "")
    return name
"""
PROJECT = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'


def package(name: str, module: str) -> dict[str, str]:
    """Make the files of a package with one module, for pip to build."""
    return {
        f"{name}.py": module,
        "setup.py": "",
        "backend.py": BACKEND.replace("NAME", name),
        "pyproject.toml": PROJECT,
    }
