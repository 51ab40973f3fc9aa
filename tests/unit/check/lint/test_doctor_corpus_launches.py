"""Launch scripts of public shapes, notebooks' exports among them: each job is seen, and nothing else is told."""

from pathlib import Path

import pytest
from corpus_launches import BOTO3, DEFAULT, OF_BOTO3
from looking import REQUEST

from entrypoint.check.finding import Severity
from entrypoint.check.lint.lint import examine, sort_out

SHAPES = [
    pytest.param(
        name, id=name, marks=[] if name in DEFAULT else [pytest.mark.more]
    )  # each kind has a sibling in DEFAULT
    for name in OF_BOTO3
]


def written(folder: Path, name: str) -> Path:
    before, submits, _, _ = OF_BOTO3[name]
    path = folder / "submit.py"
    path.write_text(f"#!/usr/bin/env python\n{before}{BOTO3}request = {REQUEST!r}\n{submits}")
    return path


@pytest.mark.parametrize("name", OF_BOTO3)
def test_it_is_known_for_a_launch_script(name: str, tmp_path: Path) -> None:
    assert sort_out([str(written(tmp_path, name))]).launches


@pytest.mark.parametrize("name", SHAPES)
def test_what_is_told_of_a_launch_script(name: str, tmp_path: Path) -> None:
    report = examine([str(written(tmp_path, name))])
    worse = {each.check for each in report.findings if each.severity > Severity.NOTE}
    assert (worse, len(report.jobs)) == (OF_BOTO3[name][2], OF_BOTO3[name][3]), report.findings
