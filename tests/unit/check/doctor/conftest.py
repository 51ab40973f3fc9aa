"""Resolve requirements without a process for each script, and keep tests from package indexes."""

import contextlib
import importlib
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import tomllib
from package_index import Package, Server, make

from entrypoint.check.doctor import requirements


@pytest.fixture
def resolves_here(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run resolve.py in this process, since starting a process would take most of a test's time."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(requirements.RESOLVE.parent))

    def run(command: list[str], *, input: str, **_: object) -> SimpleNamespace:
        program = importlib.import_module(Path(command[1]).stem)
        out = io.StringIO()
        with monkeypatch.context() as patch, contextlib.redirect_stdout(out):
            patch.setattr(sys, "stdin", io.StringIO(input))
            patch.setattr(os, "environ", os.environ.copy())
            program.main()
        return SimpleNamespace(stdout=out.getvalue())

    monkeypatch.setattr(requirements, "subprocess", SimpleNamespace(run=run))
    yield
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "/").parent == requirements.RESOLVE.parent:
            del sys.modules[name]


@pytest.fixture
def index(no_index: None, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let requirements be resolved by an index with the packages of corpus/index.toml."""
    releases = tomllib.loads((Path(__file__).parent / "corpus/index.toml").read_text()).items()
    packages = [Package(name, each, tuple(asks)) for name, versions in releases for each, asks in versions.items()]
    monkeypatch.delenv("UV_OFFLINE")
    with Server(make(tmp_path_factory.mktemp("index"), packages)) as server:
        monkeypatch.setenv("PIP_INDEX_URL", f"{server.url}/simple")
        yield


@pytest.fixture(autouse=True)
def no_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep tests from package indexes and from the settings of this machine's pip and uv."""
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    for name, value in {"UV_OFFLINE": "1", "UV_NO_CACHE": "1", "PIP_CONFIG_FILE": os.devnull}.items():
        monkeypatch.setenv(name, value)
