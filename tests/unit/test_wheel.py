"""Test the contents and requirements of the wheel that users install on laptops and other images."""

import re
import runpy
import shutil
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
import tomllib
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
TENSORFLOWS = {"tensorflow", "tensorflow-cpu", "tensorflow-cpu-aws"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Yield the opened archive of the wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "src"  # a copy: setuptools leaves a folder `build` where it builds
    for name in ("entrypoint", "sagemaker_tf_data"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "-w", folder, source], check=True, timeout=600)
    (found,) = folder.glob("*.whl")
    with zipfile.ZipFile(found) as archive:
        yield archive


@pytest.fixture
def metadata(wheel):
    (name,) = [name for name in wheel.namelist() if name.endswith("/METADATA")]
    return Parser().parsestr(wheel.read(name).decode())


def test_wheel_supports_python_3_10_and_later(wheel, metadata):
    assert wheel.filename.endswith("-py3-none-any.whl")
    assert metadata["Requires-Python"] == ">=3.10"
    assert not [name for name in wheel.namelist() if name.endswith(".so")]


def test_wheel_requires_no_tensorflow_numpy_protobuf_or_toolkit(metadata):
    always = {re.split(r"[^\w-]", need)[0] for need in metadata.get_all("Requires-Dist") if "extra ==" not in need}
    assert always == {"packaging", "psutil", "tomli", "uv", "waitress"}


def test_wheel_contains_all_files_but_the_readmes(wheel):
    paths = [path for name in ("entrypoint", "sagemaker_tf_data") for path in (ROOT / name).rglob("*")]
    files = {str(path.relative_to(ROOT)) for path in paths if path.is_file() and "__pycache__" not in path.parts}
    files = {name for name in files if not name.endswith(("/README.md", ".pyc"))}
    assert {"entrypoint/check/doctor/rules.toml", "sagemaker_tf_data/py.typed"} < files
    packed = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert packed == files


def test_wheel_contains_both_licences(wheel):
    licences = {name.partition(".dist-info/licenses/")[2] for name in wheel.namelist()}
    assert licences - {""} == {"LICENSE", "entrypoint/observe/report/page/uPlot.LICENSE"}


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize(("python", "line"), [("3.10", "2.14"), ("3.11", "2.14"), ("3.12", "2.21"), ("3.13", "2.21")])
def test_extra_brings_one_tensorflow_that_is_made_for_the_python(metadata, python, line, machine):
    """It is that of a line of the image. 2.14 was made for Python 3.11 at most."""
    where = {"python_version": python, "platform_machine": machine, "sys_platform": "linux", "extra": "tensorflow"}
    needs = [Requirement(need) for need in metadata.get_all("Requires-Dist")]
    found = [str(need.specifier) for need in needs if need.name in TENSORFLOWS and need.marker.evaluate(where)]
    pinned = (ROOT / f"container/lines/{line}/requirements.txt").read_text()
    assert len(found) == 1 and found[0].startswith(f"=={line}.")
    assert re.search(rf"(?m)^tensorflow[a-z-]*{re.escape(found[0])};", pinned)


def test_plan_command_needs_only_the_wheel(wheel, tmp_path):
    """Python runs without `site`, so no other package can be imported."""
    wheel.extractall(tmp_path / "here")
    code = "import sys; sys.path.insert(0, sys.argv.pop(1)); from entrypoint.cli.main import main; sys.exit(main())"
    command = [sys.executable, "-I", "-S", "-c", code, tmp_path / "here", "plan", "--hosts", "2", "--mode", "ps"]
    out = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert out.returncode == 0, out.stderr
    assert "algo-2" in out.stdout


def test_image_led_by_our_entrypoint_gets_what_our_programs_need():
    text = (ROOT / "pyproject.toml").read_text()
    project = tomllib.loads(text)["project"]
    extras = project["optional-dependencies"]
    brought = {"tensorflow", "mpi", "dev"}  # by the image, or for tests
    wanted = [*project["dependencies"], *(each for name in extras.keys() - brought for each in extras[name])]
    needed = runpy.run_path(str(ROOT / "container/onto/install.py"))["needed"]
    assert sorted(needed(text)) == sorted(wanted)
