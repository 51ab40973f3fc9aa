"""Keep the versions of packages that were built for one another: TensorFlow, Keras, NumPy, protobuf, Horovod ...

`constraints` is the text that pip and uv obey. It holds each of these at its installed version, and their dependencies
within the ranges that they ask for. So requirements resolve to versions that fit, or are refused before anything is
installed. A distribution may be called `tensorflow-cpu` where libraries ask for `tensorflow`; `add_aliases` makes the
second name known.

Run by path with a folder, it adds the aliases there and prints the constraints: the Dockerfile does that.
"""

import os
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

# One TensorFlow by several names; each brings the same folder, so that no two of them can be installed.
TENSORFLOWS = (
    "tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tensorflow-rocm", "tensorflow-cpu-aws", "tensorflow-intel",
    "tensorflow-macos", "intel-tensorflow", "tf-nightly", "tf-nightly-cpu", "tf-nightly-gpu",
)  # fmt: skip
ALIASES = ("tensorflow", "tensorflow-cpu")  # that an image answers to, whichever of TENSORFLOWS it has
KEPT = {
    *TENSORFLOWS, "keras", "keras-nightly", "tf-keras", "tensorflow-estimator", "tensorboard", "tensorflow-io",
    "tensorflow-io-gcs-filesystem", "sagemaker-tensorflow", "ml-dtypes", "numpy", "protobuf", "horovod", "mpi4py",
    "jax", "jaxlib", "torch", "torchvision", "torchaudio",
}  # fmt: skip
KEPT_FAMILIES = re.compile(r"nvidia-(?!ml-py)|jax-cuda")
# What libraries need when they are imported, and their metadata does not say: library, what does not fit, beside what.
UNSTATED = (
    ("tensorflow-probability", ">=0.23", "tensorflow<2.15"),
    ("tensorflow-probability", ">=0.24", "tensorflow<2.16"),
    ("tensorflow-probability", ">=0.25", "tensorflow<2.18"),
    ("tensorflow-transform", "<1", "tensorflow>=2"),  # of 2019; a resolver finds it where nothing newer fits
    ("tensorflow-ranking", ">=0", "tensorflow>=2.16"),  # like the next, it imports tf.estimator
    ("neural-structured-learning", ">=0", "tensorflow>=2.16"),
    ("tensorflow-io", ">=0", "tensorflow>=2.17"),  # its operations were compiled for 2.16
    ("keras-nlp", ">=0.13", "keras<3"),
    ("keras-hub", ">=0", "keras<3"),
    ("tensorflow-addons", ">=0", "keras>=3"),
    ("tf-models-official", ">=0", "keras>=3"),
    ("pyarrow", ">=26", "numpy<2"),
)
OPPOSITE = {">=": "<", "<": ">="}
LAST_WITH_PKG_RESOURCES = 81  # of setuptools
INSTALLER = "sagemaker-tf-entrypoint"
PACKAGES = Path(__file__).parents[3]  # that of this file
OURS = str(PACKAGES) if PACKAGES.name == "packages" else ""  # a folder that only our programs see, on other images


class Installed(NamedTuple):
    """Hold a distribution that Python finds, with its folder of metadata."""

    name: str
    version: str
    folder: Path

    def requires(self) -> Iterator[tuple[str, str, str]]:
        """Yield (name, specifier, marker) of each requirement that belongs to no extra."""
        for line in self._header("Requires-Dist"):
            requirement, _, marker = line.partition(";")
            found = re.match(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[[^]]*\])?\s*(.*)", requirement)
            if found and not re.search(r"\bextra\s*==", marker):
                yield normalized(found[1]), found[2].strip().strip("()"), marker.strip()

    def _header(self, key: str) -> Iterator[str]:
        file = self.folder / ("METADATA" if self.folder.suffix == ".dist-info" else "PKG-INFO")
        try:
            with file.open(encoding="utf-8", errors="replace") as lines:
                for line in lines:
                    if not line.strip():  # what follows is the description
                        return
                    if line.startswith(f"{key}: "):
                        yield line.partition(": ")[2].strip()
        except OSError:
            return


class Range(NamedTuple):
    """Hold the range of versions that a pinned distribution asks of another, and why."""

    name: str
    specifier: str
    marker: str
    why: str


class Pins(NamedTuple):
    """Hold the distributions that keep their versions, and the names of those that may be replaced nevertheless."""

    versions: Mapping[str, str]  # distribution -> version
    ranges: tuple[Range, ...] = ()
    barred: tuple[str, ...] = ()  # other names of an installed TensorFlow, which must not come beside it
    free: frozenset[str] = frozenset()

    @property
    def constraints(self) -> str:
        """Return the pins as the text of a constraints file for pip and uv."""
        exact = [f"{name}=={version}" for name, version in sorted(self.versions.items())]
        ranges = [f"{each.name}{each.specifier}{f'; {each.marker}' if each.marker else ''}" for each in self.ranges]
        return "\n".join([*exact, *(f"{name}<0" for name in self.barred), *dict.fromkeys(ranges), ""])


def normalized(name: str) -> str:
    """Return a distribution's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _parts(specifier: str) -> tuple[str, str, str]:
    """Return ("numpy", "<", "2") for `numpy<2`, and ("", ">=", "0") for `>=0`."""
    name, operator, version = re.split("(>=|<)", specifier)
    return name, operator, version


def numbers(version: str) -> tuple[int, ...]:
    """Return (2, 16) for `2.16.1`."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def installed(path: Iterable[str] | None = None) -> dict[str, Installed]:
    """Return the distributions in these folders, of `sys.path` by default, by normalized name; the first one wins."""
    found: dict[str, Installed] = {}
    for entry in [entry for entry in sys.path if entry != OURS] if path is None else path:
        try:
            names = os.listdir(entry) if entry else []  # noqa: PTH208 - names suffice, and there are thousands
        except OSError:
            continue
        for name in names:
            stem, suffix = os.path.splitext(name)  # noqa: PTH122
            if suffix in (".dist-info", ".egg-info"):
                distribution, _, version = stem.partition("-")
                if suffix == ".egg-info":
                    version = re.sub(r"-py\d.*", "", version)
                key = normalized(distribution)
                found.setdefault(key, Installed(key, version, Path(entry, name)))
    return found


def pins(there: Mapping[str, Installed], replace: Collection[str] = ()) -> Pins:
    """Return which of these distributions stay. `replace`: names of those that may change, with their dependencies."""
    kept = {name: each for name, each in there.items() if name in KEPT or KEPT_FAMILIES.match(name)}
    free = _freed(kept, replace)
    kept = {name: each for name, each in kept.items() if name not in free}
    versions = {name: each.version for name, each in kept.items()}
    twin = next((versions[name] for name in TENSORFLOWS if name in versions), "")
    barred: tuple[str, ...] = ()
    if twin:
        versions |= {name: versions.get(name, twin) for name in ALIASES}
        barred = tuple(name for name in TENSORFLOWS if name not in versions)
    ranges = {
        Range(name, specifier, marker, f"{each.name} {each.version}, which is here, asks for {name}{specifier}")
        for each in kept.values()
        for name, specifier, marker in each.requires()
        if specifier and name not in {*versions, *free, *barred}
    }
    for name, misfit, where in UNSTATED:
        (bad, version), (own, of, bound) = _parts(misfit)[1:], _parts(where)
        is_below = own in versions and numbers(versions[own]) < numbers(bound)
        if own in versions and is_below == (of == "<") and all(each.name != name for each in ranges):
            which = "it" if misfit == ">=0" else f"{name}{misfit}"
            why = f"{which} needs {own}{OPPOSITE[of]}{bound}, and {own} is {versions[own]} here"
            ranges.add(Range(name, f"{OPPOSITE[bad]}{version}", "", why))
    old = there.get("setuptools")
    if old and "tensorboard" in kept and int(old.version.split(".")[0]) <= LAST_WITH_PKG_RESOURCES:
        why = f"tensorboard {versions['tensorboard']}, which is here, imports pkg_resources, of setuptools up to 81"
        ranges.add(Range("setuptools", f"<={LAST_WITH_PKG_RESOURCES}.999", "", why))
    return Pins(versions, tuple(sorted(ranges)), barred, frozenset(free))


def _freed(kept: Mapping[str, Installed], replace: Collection[str]) -> set[str]:
    """Return the names in `replace`, all names of TensorFlow, and those in `kept` that these were built with."""
    free: set[str] = set()
    left = [normalized(name) for name in replace]
    while left:
        name = left.pop()
        if name not in free:
            free.add(name)
            left += TENSORFLOWS if name in TENSORFLOWS else ()
            left += [other for other, _, _ in kept[name].requires() if other in kept] if name in kept else []
    return free


def changed(before: Mapping[str, Installed], after: Mapping[str, Installed]) -> list[str]:
    """Return the names that are new, or at another version than before."""
    return [name for name in after if name not in before or before[name].version != after[name].version]


def is_alias(metadata: Path) -> bool:
    """Return whether `add_aliases` has made a folder of metadata."""
    try:
        return (metadata / "INSTALLER").read_text().strip() == INSTALLER
    except OSError:
        return False


def add_aliases(there: dict[str, Installed], folder: Path | None = None) -> list[str]:
    """Make TensorFlow known by both of its usual names, beside its metadata or in `folder`. Return the names added.

    Raise OSError if that cannot be written. `pip check`, importlib.metadata, pip and uv then find it by either name.
    """
    real = next((there[name] for name in TENSORFLOWS if name in there), None)
    added = [name for name in ALIASES if real and name not in there]
    for name in added:
        assert real
        stem = f"{name.replace('-', '_')}-{real.version}.dist-info"
        place = (folder or real.folder.parent) / stem
        place.mkdir(parents=True, exist_ok=True)
        texts = {
            "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {real.version}\n"
            f"Summary: another name of {real.name}, which is installed\nRequires-Dist: {real.name}=={real.version}\n",
            "INSTALLER": f"{INSTALLER}\n",
            "WHEEL": f"Wheel-Version: 1.0\nGenerator: {INSTALLER}\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        }
        for file, text in texts.items():
            (place / file).write_text(text)
        (place / "RECORD").write_text("".join(f"{stem}/{file},,\n" for file in (*texts, "RECORD")))
        there[name] = Installed(name, real.version, place)
    return added


if __name__ == "__main__":
    found = installed()
    add_aliases(found, Path(sys.argv[1]))
    print(pins(found).constraints, end="")
