"""Test each form of tests/requirements_forms.py in an image, by pip and by the launcher's installer."""

import hashlib
import json
from pathlib import Path

import pytest
from containers import run_alone
from package_index import make, write_certificates
from requirements_forms import FORMS, IN_EXTRA, PACKAGES, REFUSED, WHERE, Form, as_json

from images import ROOT


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the folder that all containers read: indexes, certificates, and the program."""
    folder = tmp_path_factory.mktemp("forms")
    make(folder / "main", PACKAGES, tools=("setuptools",))
    (folder / "main/more.txt").write_text("plain<2\n")
    make(folder / "extra", IN_EXTRA)
    wheel = (folder / "main/files/plain-2-py3-none-any.whl").read_bytes()
    (folder / "hash").write_text(hashlib.sha256(wheel).hexdigest())
    write_certificates(folder)
    for name in ("requirements_forms.py", "package_index.py"):
        (folder / name).write_text((ROOT / "tests" / name).read_text())
    return folder


def run(image: str, place: Path, form: Path, way: str) -> dict[str, str]:
    mounts = {place: f"{WHERE}:ro", form: "/form.json:ro"}
    done = run_alone(image, "python", f"{WHERE}/requirements_forms.py", way, mounts=mounts, network="none")
    assert done.returncode == 0, done.stdout
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    "form", [pytest.param(form, id=form.title, marks=() if form.often else pytest.mark.more) for form in FORMS]
)
def test_pip_and_our_installer_agree_on_a_form(image: str, place: Path, tmp_path: Path, form: Form) -> None:
    """Both install the same versions, or the versions of the table. A refused form installs nothing."""
    (tmp_path / "form.json").write_text(as_json(form))
    pip, ours = (run(image, place, tmp_path / "form.json", way) for way in ("pip", "ours"))
    assert pip["came"] == form.pip, pip["log"]
    assert ours["came"] == form.launchers, ours["log"]
    if form.tool == "pip":
        assert "pip installs, and not uv: " in ours["log"]
    elif ours["came"] != REFUSED:
        assert f" by {form.tool} in " in ours["log"]
    if ours["came"] == REFUSED:
        assert not ours["changed"]
        last = ours["log"].splitlines()[-1]
        assert last.startswith("requirements.txt in /tmp/code cannot be installed: ")
        assert all(words in last for words in form.says), last
