"""Test tests/hiccups.py: a command of Docker is repeated if neither we nor its caller caused the error."""

import hiccups
import pytest

REFUSES_TWICE = """#!/bin/sh
echo called >>{folder}/calls
if [ $(wc -l <{folder}/calls) -lt 3 ]; then echo 'Cannot pause container: {words}' >&2; exit 1; fi
"""


@pytest.mark.parametrize(
    ("words", "tries", "code", "calls"),
    [
        ("unable to freeze", 8, 0, 3),
        ("no such container", 8, 1, 1),  # it is the answer
        ("connection reset by peer", 2, 1, 2),  # it never works
    ],
)
def test_transient_docker_errors_are_retried_and_logged(tmp_path, monkeypatch, words, tries, code, calls):
    monkeypatch.setattr(hiccups, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(hiccups, "SAID", [])
    monkeypatch.setattr(hiccups, "TRIES", tries)
    docker = tmp_path / "docker"
    docker.write_text(REFUSES_TWICE.format(folder=tmp_path, words=words))
    docker.chmod(0o755)
    assert hiccups.run((str(docker), "pause", "algo-1")).returncode == code
    assert (tmp_path / "calls").read_text().count("called") == calls
    assert len(hiccups.SAID) == calls - 1
