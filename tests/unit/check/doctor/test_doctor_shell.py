"""Test the doctor on shell scripts: the interpreters of their first lines."""

from pathlib import Path

import pytest

from entrypoint.check.doctor.doctor import examine


def told(folder: Path, content: bytes) -> list[tuple[str, str, str]]:
    """Return (check, severity, text) of the finding on a script's first line."""
    (folder / "train.sh").write_bytes(content)
    report = examine([str(folder / "train.sh")])
    return [(each.check, str(each.severity), each.found) for each in report.findings]


@pytest.mark.parametrize(
    "first",
    ["#!/bin/bash", "#!/bin/sh -e", "#! /usr/bin/env bash", "#!/usr/bin/env -S python3 -u", "# none", "set -e", "",
     "#!/usr/bin/env python", "#!./mine", "#!/usr/bin/perl"],
)  # fmt: skip
def test_what_our_image_has_is_left_alone(tmp_path, first):
    assert told(tmp_path, f"{first}\necho told\n".encode()) == []


@pytest.mark.parametrize(
    ("first", "asked"),
    [("#!/bin/zsh", "/bin/zsh"), ("#!/usr/bin/env fish", "fish"), ("#!/home/me/miniconda3/bin/python", "/home/me/"),
     ("#!/usr/bin/python", "/usr/bin/python"), ("#!/usr/bin/env -S A=1 Rscript", "Rscript"), ("#!", "nothing"),
     ("#!C:\\Python\\python.exe", "C:")],
)  # fmt: skip
def test_what_it_lacks_is_told_with_its_line(tmp_path, first, asked):
    ((check, severity, found),) = told(tmp_path, f"{first}\necho told\n".encode())
    assert (check, severity) == ("interpreter-missing", "warning")
    assert f"its first line, {first!r}, asks for {asked}" in found


def test_line_ends_of_windows_are_a_note_and_no_part_of_a_name(tmp_path):
    ((check, severity, found),) = told(tmp_path, b"\xef\xbb\xbf#!/bin/bash\r\necho told\r\n")
    assert (check, severity) == ("line-ends", "note")
    assert "our launcher removes them" in found
    assert [check for check, *_ in told(tmp_path, b"#!/bin/zsh\r\necho\r\n")] == ["interpreter-missing", "line-ends"]
