"""Test container/lines: what is locked is what is pinned."""

import json
import re
from pathlib import Path

import pytest

LINES = Path(__file__).resolve().parents[2] / "container/lines"
PREPARE = LINES.parents[1] / "entrypoint/programs/prepare"
GPU_PATCH = LINES.parent / "gpu/horovod.patch"
FOR_GPUS = [path.parent.name for path in sorted(LINES.glob("*/gpu.txt"))]
NAMES = [path.name for path in sorted(LINES.iterdir()) if path.is_dir()]


def parts(file: Path) -> list[list[str]]:
    """Return the pins of each part, in order."""
    found: list[list[str]] = []
    for line in file.read_text().splitlines():
        if line.startswith("# ==== "):
            found.append([])
        elif match := re.match(r"[a-z][\w.-]*==\S+", line):
            found[-1].append(match[0])
    return [sorted(part) for part in found]


@pytest.mark.parametrize("name", NAMES)
def test_line_is_locked_as_it_is_pinned(name: str) -> None:
    pinned, locked = parts(LINES / name / "requirements.txt"), parts(LINES / name / "locked.txt")
    assert pinned == locked, f"wanted: container/lines/lock.sh {name}"
    assert len(pinned) == 4


@pytest.mark.parametrize("name", NAMES)
def test_launcher_knows_pins_and_requirements_of_tensorflow(name: str) -> None:
    lines, requires = (json.loads((PREPARE / f"image_{what}.json").read_text()) for what in ("lines", "requires"))
    pinned = {pin for part in parts(LINES / name / "requirements.txt")[:3] for pin in part}
    assert {f"{package}=={version}" for package, version in lines[name].items()} == pinned
    for package, line in (("tensorflow-cpu", name), ("tensorflow", f"{name}-gpu")):
        assert any(each.startswith("wrapt") for each in requires[f"{package}=={lines[line][package]}"])


@pytest.mark.parametrize("name", FOR_GPUS)
def test_packages_for_gpus_are_locked_as_they_are_pinned(name: str) -> None:
    """The image for GPUs has TensorFlow of the same version, built with CUDA."""
    pinned, locked = parts(LINES / name / "gpu.txt"), parts(LINES / name / "gpu-locked.txt")
    assert pinned == locked, f"wanted: container/lines/lock.sh {name}"
    (cpu,) = (pin for pin in parts(LINES / name / "requirements.txt")[0] if pin.startswith("tensorflow-cpu=="))
    assert cpu.replace("-cpu", "") in pinned[0]


def test_plugin_of_jax_is_locked_in_jaxs_version() -> None:
    pinned, locked = parts(LINES / "2.21/gpu-jax.txt"), parts(LINES / "2.21/gpu-jax-locked.txt")
    assert pinned == locked, "wanted: container/lines/lock.sh 2.21"
    (jax,) = (pin for part in parts(LINES / "2.21/requirements.txt") for pin in part if pin.startswith("jax=="))
    assert {pin.partition("==")[2] for pin in pinned[0]} == {jax.partition("==")[2]}


@pytest.mark.parametrize(
    "locked", sorted(LINES.glob("*/*locked.txt")), ids=lambda path: f"{path.parent.name}-{path.name}"
)
def test_every_locked_version_has_a_hash(locked: Path) -> None:
    text = locked.read_text()
    for pin in re.split(r"\n(?=[a-z])", text)[1:]:
        assert re.match(r"[a-z][\w.-]*==\S+ \\\n    --hash=sha256:[0-9a-f]{64}", pin), pin[:200]


@pytest.mark.parametrize("patch", sorted([*LINES.glob("*/patches/*"), GPU_PATCH]), ids=lambda path: path.name)
def test_patch_says_why(patch: Path) -> None:
    why = patch.read_text().partition("\n--- ")[0]
    assert patch.suffix == ".patch" and why.startswith("Horovod ") and "\n- " in why
