"""Test tests/hiccups.py: Docker's commands are repeated if neither we nor the caller caused the fault."""

from pathlib import Path

import hiccups
import pytest

REFUSES_TWICE = """#!/bin/sh
echo called >>{folder}/calls
if [ $(wc -l <{folder}/calls) -lt 3 ]; then echo 'Cannot pause container: {words}' >&2; exit 1; fi
echo paused
"""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hiccups, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(hiccups, "SAID", [])


def docker(folder: Path, words: str) -> str:
    path = folder / "docker"
    path.write_text(REFUSES_TWICE.format(folder=folder, words=words))
    path.chmod(0o755)
    return str(path)


def test_what_runc_gives_up_on_is_tried_again_and_said(tmp_path: Path) -> None:
    done = hiccups.run((docker(tmp_path, "unable to freeze"), "pause", "algo-1"))
    assert (done.returncode, done.stdout) == (0, "paused\n")
    assert len(hiccups.SAID) == 2
    assert hiccups.SAID[0].endswith("docker pause algo-1: " + hiccups.HICCUPS["unable to freeze"])


def test_any_other_failure_is_the_answer(tmp_path: Path) -> None:
    done = hiccups.run((docker(tmp_path, "no such container"), "pause", "algo-1"))
    assert done.returncode == 1 and "no such container" in done.stderr
    assert hiccups.SAID == []


def test_what_never_works_fails_after_some_tries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hiccups, "TRIES", 2)
    assert hiccups.run((docker(tmp_path, "connection reset by peer"),)).returncode == 1
    assert (tmp_path / "calls").read_text().count("called") == 2
