"""Test container/lines: locked versions match the pins."""

import json
import re
from pathlib import Path

import pytest

LINES = Path(__file__).resolve().parents[2] / "container/lines"
PREPARE = LINES.parents[1] / "entrypoint/programs/prepare"
GPU_PATCH = LINES.parent / "gpu/horovod.patch"
PINNED = sorted([*LINES.glob("*/requirements.txt"), *LINES.glob("*/gpu.txt"), *LINES.glob("*/gpu-jax.txt")])
NAMES = [path.name for path in sorted(LINES.iterdir()) if path.is_dir()]


def parts(file: Path, machine: str = "") -> list[list[str]]:
    """Return the pins of each part, in order; with a machine, those that are for it."""
    found: list[list[str]] = []
    for line in file.read_text().splitlines():
        if line.startswith("# ==== "):
            found.append([])
        match = re.match(r"""([a-z][\w.-]*==[^\s;]+)(?:\s*; platform_machine == ['"](\w+)['"])?""", line)
        if match and (machine in ("", match[2]) or not match[2]):
            found[-1].append(match[1])
    return [sorted(part) for part in found]


@pytest.mark.parametrize("file", PINNED, ids=lambda file: f"{file.parent.name}-{file.name}")
def test_locked_versions_equal_the_pins_of_each_line(file: Path) -> None:
    locked = file.with_name(f"{file.stem}-locked.txt".removeprefix("requirements-"))
    assert parts(file) == parts(locked), f"wanted: container/lines/lock.sh {file.parent.name}"
    assert len(parts(file)) == 4 or file.stem != "requirements"


@pytest.mark.parametrize("name", NAMES)
def test_launcher_has_pins_and_requirements_of_tensorflow(name: str) -> None:
    lines, requires = (json.loads((PREPARE / f"image_{what}.json").read_text()) for what in ("lines", "requires"))
    pinned = {pin for part in parts(LINES / name / "requirements.txt", "x86_64")[:3] for pin in part}
    assert {f"{package}=={version}" for package, version in lines[name].items()} == pinned
    for package, line in (("tensorflow-cpu", name), ("tensorflow", f"{name}-gpu")):
        assert any(each.startswith("wrapt") for each in requires[f"{package}=={lines[line][package]}"])


@pytest.mark.parametrize("file", sorted(LINES.glob("*/gpu.txt")), ids=lambda file: file.parent.name)
def test_gpu_image_has_the_same_tensorflow_version(file: Path) -> None:
    (cpu,) = (pin for pin in parts(file.with_name("requirements.txt"))[0] if pin.startswith("tensorflow-cpu=="))
    assert cpu.replace("-cpu", "") in parts(file)[0]


@pytest.mark.parametrize("name", NAMES)
def test_images_of_both_platforms_differ_by_tensorflows_name_and_the_operator(name: str) -> None:
    amd64, arm64 = (
        {pin for part in parts(LINES / name / "requirements.txt", machine) for pin in part}
        for machine in ("x86_64", "aarch64")
    )
    only_amd64, only_arm64 = (
        {pin for pin in pins if not pin.startswith("sagemaker-tensorflow==")} for pins in (amd64 - arm64, arm64 - amd64)
    )
    ((tensorflow, version), (arm_tensorflow, arm_version)) = (
        pin.split("==") for pins in (only_amd64, only_arm64) for pin in pins
    )
    assert tensorflow.startswith("tensorflow") and arm_tensorflow.startswith("tensorflow") and version == arm_version


def test_jax_plugin_is_pinned_at_the_version_of_jax() -> None:
    (jax,) = (pin for part in parts(LINES / "2.21/requirements.txt") for pin in part if pin.startswith("jax=="))
    versions = {pin.partition("==")[2] for pin in parts(LINES / "2.21/gpu-jax.txt")[0]}
    assert versions == {jax.partition("==")[2]}


@pytest.mark.parametrize(
    "locked", sorted(LINES.glob("*/*locked.txt")), ids=lambda path: f"{path.parent.name}-{path.name}"
)
def test_every_locked_version_has_a_hash(locked: Path) -> None:
    text = locked.read_text()
    for pin in re.split(r"\n(?=[a-z])", text)[1:]:
        assert re.match(r"[a-z][\w.-]*==[^\n]+ \\\n    --hash=sha256:[0-9a-f]{64}", pin), pin[:200]


@pytest.mark.parametrize("patch", sorted([*LINES.glob("*/patches/*"), GPU_PATCH]), ids=lambda path: path.name)
def test_patch_file_states_its_reason(patch: Path) -> None:
    why = patch.read_text().partition("\n--- ")[0]
    assert patch.suffix == ".patch" and why.startswith("Horovod ") and "\n- " in why
