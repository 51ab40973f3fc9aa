"""Test that the doctor reports requirements that an image cannot meet, in the words of the host's refusal."""

import importlib.metadata
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from looking import SCRIPT, change_of, look

from entrypoint.check.doctor.doctor import DoctorReport
from entrypoint.check.doctor.requirements import RESOLVE
from entrypoint.check.finding import Finding

pytestmark = pytest.mark.usefixtures("resolves_here")


def wheel(folder: Path, name: str, version: str = "1.0", requires: str = "") -> None:
    folder.mkdir(exist_ok=True)
    about = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as file:
        asks = f"Requires-Dist: {requires}\n" if requires else ""
        file.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{asks}")
        file.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{about}/RECORD", "")


def refused(report: DoctorReport) -> list[Finding]:
    return [each for each in report.findings if each.check == "requirement-refused"]


def test_library_requiring_another_tensorflow_is_refused(tmp_path: Path) -> None:
    wheel(tmp_path / "wheels", "needy", "2.0", "tensorflow>=2.16")
    wheel(tmp_path / "wheels", "needy", "1.0", "tensorflow>=2.10")
    needy = f"--no-index\n--find-links {tmp_path}/wheels\nneedy{{}}\n"
    (finding,) = refused(look(tmp_path, SCRIPT, {}, needy.format(">=2")))
    assert (str(finding.severity), finding.place.line) == ("error", 3)
    assert "needy>=2, which needs tensorflow>=2.16, and tensorflow is 2.14.1 here" in finding.found
    assert finding.instead.startswith("needy==1.0, which fits")
    assert look(tmp_path, SCRIPT, {}, needy.format("")).findings == ()
    assert refused(look(tmp_path, SCRIPT, change_of({"tag": "2.21"}), needy.format(">=2"))) == []
    wheel(tmp_path / "wheels", "wanting", "1.0", "wrapt>=1.15")  # TensorFlow 2.14 asks for less
    (finding,) = refused(look(tmp_path, SCRIPT, {}, needy.format("").replace("needy", "wanting")))
    assert "wrapt" in finding.found


@pytest.mark.skipif(
    not any(True for each in importlib.metadata.distributions() if each.name == "tensorflow-cpu"),
    reason="this Python has no TensorFlow that stays",
)
@pytest.mark.parametrize("asked", ["needy>=2", "tensorflow==2.16.1\nsix", "needy==3"])
def test_host_prints_the_same_refusal_as_the_doctor(asked: str, tmp_path: Path) -> None:
    wheel(tmp_path / "wheels", "needy", "2.0", "tensorflow>=2.16")
    wheel(tmp_path / "wheels", "needy", "1.0")
    requirements = f"--no-index\n--find-links {tmp_path}/wheels\n{asked}\n"
    (finding,) = refused(look(tmp_path, SCRIPT, {}, requirements))
    command = [sys.executable, RESOLVE.with_name("installer.py"), tmp_path]
    host = subprocess.run(command, capture_output=True, text=True)
    assert host.returncode == 65 and finding.found in host.stdout


def test_long_list_of_packages_is_a_note(tmp_path: Path) -> None:
    for number in range(30):
        wheel(tmp_path / "wheels", f"p{number}", requires=f"p{number + 1}")
    wheel(tmp_path / "wheels", "p30")
    requirements = f"--no-index\n--find-links {tmp_path}/wheels\n"
    report = look(tmp_path, SCRIPT, {}, f"{requirements}p0\n")
    assert [(each.check, str(each.severity)) for each in report.findings] == [("requirements-long", "note")]
    assert "31 packages" in report.findings[0].found
    assert look(tmp_path, SCRIPT, {}, f"{requirements}p1\nsix\n").findings == ()
