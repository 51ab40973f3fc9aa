"""Test that the doctor looks at the platform of an image only for SageMaker's hosts, and does not wait for Docker.

What it finds there, examples.toml has, under image-platform.
"""

from pathlib import Path

import pytest
from builders import write_files
from looking import IMAGE, REQUEST

from entrypoint.check.doctor import check_image
from entrypoint.check.doctor.check_image import of_images
from entrypoint.check.doctor.planned_job import described
from entrypoint.check.doctor.request import Request

ARM64 = "[ $# = 5 ] && echo linux/arm64"


@pytest.fixture
def found(tmp_path: Path):
    """Return a function that gives the findings of a job, with a shell script as `docker`."""

    def found(docker: str, local: bool = False) -> list[str]:
        write_files(tmp_path, {"docker": f"#!/bin/sh\n{docker}\n"})
        (tmp_path / "docker").chmod(0o755)
        job = described(Request(body=REQUEST, file="submit.py", local=local))
        return [each.found for each in of_images([job], "", {"PATH": f"{tmp_path}:/usr/bin:/bin"})]

    return found


def test_image_of_another_platform_is_right_for_the_local_mode(found) -> None:
    (text,) = found(ARM64)
    assert text.startswith(IMAGE)
    assert found(ARM64, local=True) == []


@pytest.mark.parametrize("docker", ["exec sleep 600", "exit 1", "exec no-such-program"])
def test_docker_that_does_not_answer_is_no_finding(found, docker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_image, "ANSWER_SECONDS", 0.5)
    assert found(docker) == []
