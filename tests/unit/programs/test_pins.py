"""Test which packages are pinned to their installed version, with metadata as in images."""

import importlib.metadata
from pathlib import Path

import pytest
from pins import add_aliases, installed, is_alias, pins


def site(folder: Path, *distributions: str, **requires: str) -> list[str]:
    """Make metadata of `name==version`; `requires` gives requirements by package, with underscores in names."""
    for name, _, version in (each.partition("==") for each in distributions):
        place = folder / f"{name.replace('-', '_')}-{version}.dist-info"
        place.mkdir(parents=True)
        asked = [f"Requires-Dist: {each}" for each in requires.get(name.replace("-", "_"), "").split("|") if each]
        text = "\n".join(
            ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *asked, "", "Requires-Dist: x<1"]
        )
        (place / "METADATA").write_text(text)
    return [str(folder)]


CPU = ("tensorflow-cpu==2.14.1", "numpy==1.26.4", "keras==2.14.0", "wrapt==1.14.2", "pandas==2.0", "setuptools==80.1",
       "tensorboard==2.14.1")  # fmt: skip
GPU = ("tensorflow==2.14.1", "nvidia-cublas-cu11==11.11.3.6", "nvidia-ml-py==13.6", "jax-cuda12-plugin==0.10.2")


def test_versions_of_tensorflow_and_dependents_stay(tmp_path: Path) -> None:
    asked = "numpy<2.0.0,>=1.23.5|wrapt<1.15,>=1.11.0|nvidia-cublas-cu11==11.11.3.6; extra == 'and-cuda'|six"
    found = pins(installed(site(tmp_path, *CPU, tensorflow_cpu=asked)))
    assert found.versions == {
        **{"tensorflow": "2.14.1", "tensorflow-cpu": "2.14.1", "tensorboard": "2.14.1"},
        **{"numpy": "1.26.4", "keras": "2.14.0"},
    }
    lines = found.constraints.splitlines()
    assert {"setuptools<=81.999", "wrapt<1.15,>=1.11.0", "tensorflow-probability<0.23", "keras-hub<0"} <= set(lines)
    assert not any(line.startswith(("six", "tensorflow-addons", "what-a-description-says")) for line in lines)
    assert "tf-nightly<0\n" in found.constraints and "numpy==1.26.4\n" in found.constraints


def test_gpu_libraries_stay_with_their_tensorflow_build(tmp_path: Path) -> None:
    found = pins(installed(site(tmp_path, *GPU))).versions
    assert found["nvidia-cublas-cu11"] == "11.11.3.6" and found["jax-cuda12-plugin"] == "0.10.2"
    assert found["tensorflow-cpu"] == found["tensorflow"] == "2.14.1"
    assert "nvidia-ml-py" not in found


@pytest.mark.parametrize(
    ("replace", "freed"),
    [("numpy", {"numpy"}), ("TensorFlow", {"tensorflow", "tensorflow-cpu", "numpy", "keras"}), ("pandas", set())],
)
def test_replacing_a_package_unpins_its_companions(tmp_path: Path, replace: str, freed: set[str]) -> None:
    there = installed(site(tmp_path, *CPU, tensorflow_cpu="numpy<2|keras<2.15|wrapt<1.15"))
    before, after = pins(there), pins(there, [replace])
    assert before.versions.keys() - after.versions.keys() == freed
    assert not any(each.name == "numpy" for each in after.ranges)  # TensorFlow's own wish would hold it


@pytest.mark.parametrize("real, other", [("tensorflow-cpu", "tensorflow"), ("tensorflow", "tensorflow-cpu")])
def test_tensorflow_is_installed_under_both_package_names(tmp_path: Path, real: str, other: str) -> None:
    path = site(tmp_path, f"{real}==2.14.1")
    assert add_aliases(installed(path)) == [other]
    (alias,) = importlib.metadata.distributions(name=other, path=path)
    assert [is_alias(each.folder) for _, each in sorted(installed(path).items())] == [
        name == other for name in sorted((real, other))
    ]
    assert (alias.version, alias.requires) == ("2.14.1", [f"{real}==2.14.1"])
    assert add_aliases(installed(path)) == []


def test_python_without_tensorflow_gets_no_alias(tmp_path: Path) -> None:
    path = site(tmp_path, "numpy==2.0")
    assert add_aliases(installed(path)) == []
    assert pins(installed(path)).constraints == "numpy==2.0\n"
