"""Test that requirements files are read as by pip, with file and line of each requirement."""

import os
from pathlib import Path

import pytest
from unusable import Unusable
from wanted import Wanted, read


def lines(folder: Path, text: str, **more: str) -> list[tuple[str, str]]:
    """Return (place, requirement) for each requirement; `more` has other files by name without `.txt`."""
    for name, content in {"requirements": text, **more}.items():
        (folder / f"{name}.txt").write_bytes(content.encode())
    return [(each.at, each.text) for each in read(folder / "requirements.txt").wanted]


def test_line_numbers_count_comments_continuations_and_foreign_line_ends(tmp_path: Path) -> None:
    text = "\ufeff# first\r\n\r\nplain>=1 # why\r\nother \\\r\n  ==2\r\nlast#1"
    assert lines(tmp_path, text) == [("line 3", "plain>=1"), ("line 4", "other   ==2"), ("line 6", "last#1")]


def test_comment_ends_a_continued_line(tmp_path: Path) -> None:
    assert lines(tmp_path, "plain \\\n# why\nother\n") == [("line 1", "plain"), ("line 3", "other")]


def test_nested_requirements_are_read_from_the_files_folder(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more/base.txt").write_text("plain\n-c limits.txt\n-r ../requirements.txt\n")
    (tmp_path / "more/limits.txt").write_text("other<2\n")
    (tmp_path / "requirements.txt").write_text("-rmore/base.txt\nlast\n--requirement=none.txt\n")
    found = read(tmp_path / "requirements.txt")
    assert [(each.at, each.text, each.constraint) for each in found.wanted] == [
        ("base.txt line 1", "plain", False), ("limits.txt line 1", "other<2", True), ("line 2", "last", False),
    ]  # fmt: skip
    assert found.missing == [str(tmp_path / "none.txt")]


def test_requirements_options_are_listed_separately(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text(
        "--index-url=file:///a\n-ihttps://b\n--pre\n-f 'my wheels'\n-c https://limits/x.txt\n--hash\n"
    )
    assert read(tmp_path / "requirements.txt").options == [
        ["--index-url", "file:///a"], ["-i", "https://b"], ["--pre"], ["-f", "my wheels"],
        ["-c", "https://limits/x.txt"], ["--hash"],
    ]  # fmt: skip


WHAT = {
    # a line: text, name, its own options, editable
    "Plain[x,y] >= 1 ; python_version > '3'": ("Plain[x,y] >= 1 ; python_version > '3'", "Plain", "", False),
    "plain==1 --hash=sha256:00 --hash=sha256:11": ("plain==1", "plain", "--hash=sha256:00 --hash=sha256:11", False),
    "plain @ https://there/plain.whl": ("plain @ https://there/plain.whl", "plain", "", False),
    "./folder[x]": ("./folder[x]", "", "", False),
    "git+https://there/plain.git#egg=plain": ("git+https://there/plain.git#egg=plain", "", "", False),
    "-e ./folder": ("./folder", "", "", True),
    "--editable=./folder": ("./folder", "", "", True),
    "plain ==": ("plain ==", "", "", False),
}


@pytest.mark.parametrize("line", WHAT)
def test_requirements_line_is_read_as_by_pip(tmp_path: Path, line: str) -> None:
    (tmp_path / "requirements.txt").write_text(line)
    [found] = read(tmp_path / "requirements.txt").wanted
    assert isinstance(found, Wanted)
    name = found.requirement.name if found.requirement else ""
    assert (found.text, name, found.options, found.editable) == WHAT[line]


def test_set_variables_are_expanded_in_requirements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEAST", "2")
    assert lines(tmp_path, "plain>=${LEAST}\nother==${NOT_SET}\n$LEAST") == [
        ("line 1", "plain>=2"), ("line 2", "other==${NOT_SET}"), ("line 3", "$LEAST"),
    ]  # fmt: skip


def test_requirements_file_that_is_a_fifo_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "more.txt")
    with pytest.raises(Unusable, match=r"more\.txt is a named pipe"):
        lines(tmp_path, "-r more.txt\n")
