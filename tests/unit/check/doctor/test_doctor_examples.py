"""Test that the doctor finds nothing wrong in our own examples."""

from pathlib import Path

import pytest

from entrypoint.base.severity import Severity
from entrypoint.check.doctor.doctor import examine, sort_out

ROOT = Path(__file__).resolve().parents[4]
# submit.py is a launch script: tests/sdk/test_doctor_of_sdks.py runs it, with each SDK. Modules are read with programs.
PROGRAMS = sorted(
    path for path in (ROOT / "examples").rglob("*.py") if path.name != "submit.py" and "__main__" in path.read_text()
)


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: str(path.relative_to(ROOT / "examples")))
def test_doctor_finds_nothing_in_our_examples(path: Path) -> None:
    image = "sagemaker-tf-entrypoint:2.21" if "jax" in path.stem else ""  # jax is not in the default image
    report = examine([str(path)], image=image)
    assert [each for each in report.findings if each.severity > Severity.NOTE] == []


def test_launch_script_is_recognised_by_its_calls() -> None:
    files = sort_out([str(ROOT / "examples/submit.py"), str(ROOT / "examples/tf_launcher/__init__.py")])
    assert [Path(each).name for each in files.launches] == ["submit.py"]
    assert [Path(each).name for each in files.programs] == ["__init__.py"]
