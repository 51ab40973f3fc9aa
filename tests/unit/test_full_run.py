"""Test tests/full_run.py: what counts as the same sources, and what a default run leaves out."""

import json
import shutil
from pathlib import Path

import full_run
import pytest
from full_run import digest, left, why_needed, write
from outcomes.table import CASES, HEAVY, PAIRS, pairs_of


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Make a small tree of sources."""
    (tmp_path / "entrypoint" / "launcher" / "job").mkdir(parents=True)
    (tmp_path / "entrypoint" / "launcher" / "job" / "config.py").write_text("A = 1  # one\n")
    (tmp_path / "container" / "opt").mkdir(parents=True)
    (tmp_path / "container" / "opt" / "requirements.txt").write_text("flask==3.0\n")
    (tmp_path / "Dockerfile").write_text("FROM debian\n")
    (tmp_path / "tests").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("entrypoint/launcher/job/config.py", "A = 2\n"),
        ("entrypoint/launcher/job/config.py", "A = 1\n'no docstring'\n"),
        ("entrypoint/launcher/job/new.py", ""),
        ("container/opt/requirements.txt", "flask==3.1\n"),
        ("Dockerfile", "FROM ubuntu\n"),
        ("sagemaker_tf_data/__init__.py", ""),
    ],
)
def test_other_sources_need_a_full_run(root: Path, name: str, content: str) -> None:
    record = root / "tests" / "full_run.json"
    assert why_needed("unit", record, root) == "no full run of it is on record in tests/full_run.json"
    (root / "counts").write_text('{"ring": "unit", "tests": 3, "left_out": 0}\n')
    write(root / "counts", record, root)
    assert why_needed("unit", record, root) == ""
    assert why_needed("table", record, root) == "no full run of it is on record in tests/full_run.json"
    (root / name).parent.mkdir(exist_ok=True)
    (root / name).write_text(content)
    assert "the sources have changed since its last full run, of 20" in why_needed("unit", record, root)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("entrypoint/launcher/job/config.py", "A = (\n    1\n)\n"),  # layout
        ("entrypoint/launcher/job/config.py", '"""Read the config files."""\nA = 1\n'),
        ("entrypoint/README.md", "text"),
        ("tests/unit/test_new.py", "def test(): pass"),
    ],
)
def test_what_changes_nothing_needs_none(root: Path, name: str, content: str) -> None:
    before = digest(root)
    (root / name).parent.mkdir(exist_ok=True)
    (root / name).write_text(content)
    assert digest(root) == before


def test_the_outcome_table_runs_again_for_the_launcher_only(root: Path) -> None:
    record = root / "tests" / "full_run.json"
    (root / "counts").write_text('{"ring": "table", "tests": 3, "left_out": 0}\n')
    write(root / "counts", record, root)
    (root / "Dockerfile").write_text("FROM ubuntu\n")
    assert why_needed("table", record, root) == ""
    (root / "entrypoint" / "launcher" / "job" / "config.py").write_text("A = 2\n")
    assert "the sources have changed" in why_needed("table", record, root)


def test_a_file_that_moves_is_another(root: Path) -> None:
    before = digest(root)
    shutil.move(root / "entrypoint" / "launcher" / "job" / "config.py", root / "entrypoint" / "config.py")
    assert digest(root) != before


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"unit": {"digest": "x"}}'])
def test_a_record_that_is_none_is_no_full_run(root: Path, text: str) -> None:
    record = root / "tests" / "full_run.json"
    record.write_text(text)
    assert "no full run of it is on record" in why_needed("unit", record, root)


def test_the_record_says_what_ran_of_each_ring(root: Path) -> None:
    counts, record = root / "counts", root / "tests" / "full_run.json"
    counts.write_text('{"ring": "unit", "tests": 3, "left_out": 0}\n{"ring": "local", "tests": 4, "left_out": 0}\n')
    write(counts, record, root)
    counts.write_text('{"ring": "local", "tests": 5, "left_out": 0}\n{"ring": "sdk", "tests": 6, "left_out": 1}\n')
    write(counts, record, root)
    said = json.loads(record.read_text())
    assert {ring: fields["tests"] for ring, fields in said.items()} == {"unit": 3, "local": 5}
    assert {"date", "commit", "machine", "digest"} <= set(said["unit"])


def test_another_line_of_the_image_is_about_its_own_pins_and_the_dockerfile(root: Path) -> None:
    counts, record, line = root / "counts", root / "tests" / "full_run.json", root / "container/lines/2.21"
    line.mkdir(parents=True)
    (line / "requirements.txt").write_text("tensorflow-cpu==2.21.0\n")
    counts.write_text(
        '{"ring": "line-2.21", "tests": 9, "left_out": 0}\n{"ring": "table", "tests": 9, "left_out": 0}\n'
    )
    write(counts, record, root)
    (root / "entrypoint/launcher/job/config.py").write_text("A = 2\n")
    assert why_needed("table", record, root) and not why_needed("line-2.21", record, root)
    (line / "requirements.txt").write_text("tensorflow-cpu==2.21.1\n")
    assert "the sources have changed" in why_needed("line-2.21", record, root)


def test_an_image_for_gpus_is_also_about_what_is_for_gpus_only(root: Path) -> None:
    counts, record = root / "counts", root / "tests" / "full_run.json"
    for folder in ("container/lines/2.21", "container/gpu"):
        (root / folder).mkdir(parents=True)
        (root / folder / "check.py").write_text("check = 1\n")
    counts.write_text(
        '{"ring": "line-2.21", "tests": 9, "left_out": 0}\n{"ring": "line-2.21-gpu", "tests": 9, "left_out": 0}\n'
    )
    write(counts, record, root)
    (root / "container/gpu/check.py").write_text("check = 2\n")
    assert not why_needed("line-2.21", record, root)
    assert "the sources have changed" in why_needed("line-2.21-gpu", record, root)


def test_what_was_left_out_is_said_with_the_command_for_it(root: Path) -> None:
    counts, record = root / "counts", root / "tests" / "full_run.json"
    some = '{"ring": "unit", "left_out": 0}\n{"ring": "table", "left_out": 184}\n'
    begins, ends = "left out, as variants of others: 184 of table (", "). `tests/run.sh --all` runs them, too"
    counts.write_text(some)
    assert left(counts, record, root) == f"{begins}no full run of it is on record in tests/full_run.json{ends}"
    counts.write_text('{"ring": "unit", "left_out": 0}\n{"ring": "table", "left_out": 0}\n')
    assert left(counts, record, root) == ""
    write(counts, record, root)
    counts.write_text(some)
    assert left(counts, record, root) == f"{begins}passed on these sources{ends}"


def test_the_sources_of_this_repository_are_found() -> None:
    names = {path.relative_to(full_run.ROOT).as_posix() for path in full_run.files(full_run.ROOT)}
    assert {"Dockerfile", "entrypoint/train.py", "container/lines/2.14/requirements.txt"} <= names


def test_rows_that_always_run_show_each_event_and_each_pair() -> None:
    """Each event and exit code; each way with each place and moment, and with each kind of exit code."""
    light = [case for case in CASES if case.event not in HEAVY]
    few = [case for case in light if case.name in PAIRS]
    assert {pair for case in few for pair in pairs_of(case)} == {pair for case in light for pair in pairs_of(case)}
    assert {case.event for case in few} == {case.event for case in light}
    assert {case.code for case in few} == {case.code for case in CASES}
    assert {(case.way, case.where) for case in few} == {(case.way, case.where) for case in CASES}
    assert len(few) < 0.4 * len(CASES)
