"""Test that an output folder keeps its logs, and which paths lie in a folder that hosts do not see."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from entrypoint.base.errors import ConfigError
from entrypoint.launcher.outcome.outcome import Exit
from entrypoint.simulate import run
from entrypoint.simulate.local_channels import lies_in
from entrypoint.simulate.spec import LocalJob


@pytest.mark.parametrize("before", [True, False], ids=["before the hosts", "after the hosts"])
def test_host_logs_stay_if_the_engine_fails_while_ending(tmp_path, monkeypatch, before):
    """The engine fails before the hosts start, or after their end, such as while copying their files."""

    @contextlib.contextmanager
    def fails() -> Iterator[None]:
        if not before:
            yield
        raise ConfigError("docker cp failed")

    def hosts_run(folders: list, timeout: float | None) -> dict[str, Exit]:
        for folder in folders:
            folder.log.write_text("trained")
        return {folder.host: Exit(code=0) for folder in folders}

    monkeypatch.setattr(run, "HostRunner", lambda *_: SimpleNamespace(run=hosts_run))
    monkeypatch.setattr(run, "Injector", lambda *_: SimpleNamespace(report=list))
    engine = SimpleNamespace(name="", settings={}, faults=frozenset(), check=list, notes=list, ready=fails)
    (tmp_path / "src").mkdir()
    (tmp_path / "src/train.py").touch()
    job = LocalJob(program="train.py", source=tmp_path / "src", output=tmp_path / "out")
    with pytest.raises(ConfigError, match="docker cp failed"):
        run.run_local(job, engine)
    logs = [path.read_text() for path in (tmp_path / "out").rglob("log.txt")]
    assert logs == ([] if before else ["trained"])
    assert (tmp_path / "out/algo-1").exists() is not before


def test_path_containment_follows_links(tmp_path: Path):
    (tmp_path / "ml/data").mkdir(parents=True)
    (tmp_path / "to_data").symlink_to("ml/data")
    (tmp_path / "to_ml").symlink_to("ml")
    (tmp_path / "ml/away").symlink_to(tmp_path)
    (tmp_path / "circle").symlink_to("circle")
    assert [
        lies_in(tmp_path / path, tmp_path / folder)
        for path, folder in [
            ("ml/data", "ml"), ("to_data", "ml"), ("to_data/rows", "ml"), ("ml/data", "to_ml"), ("ml/away", "ml"),
            ("mlx", "ml"), ("circle", "ml"),
        ]
    ] == [True] * 5 + [False] * 2  # fmt: skip
