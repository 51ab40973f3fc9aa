"""Find the model in /opt/ml/model, as scripts, Keras and AWS's images leave it there."""

import os
from dataclasses import dataclass
from pathlib import Path

from entrypoint.base.errors import ConfigError

KERAS = (".keras", ".h5", ".hdf5")
WANTED = (
    "wanted a SavedModel in a numbered folder (1/saved_model.pb, or NAME/1/saved_model.pb, or export/NAME/1/...), "
    "a SavedModel in the folder itself, or one file of Keras (.keras or .h5)"
)
_DEEPEST = 4  # folders: export/Servo/1 is 3
_SHOWN = 10


@dataclass(frozen=True)
class Found:
    """Hold the place of the model, and how requests may name it."""

    path: Path  # a folder with saved_model.pb, or a file of Keras
    name: str
    version: str


def find_model(folder: Path, name: str = "") -> Found:
    """Return the model, with the highest of its versions.

    Raise ConfigError if there is none, or several and no name fits.
    """
    if not folder.is_dir():
        raise ConfigError(f"there is no folder {folder}; {WANTED}")
    found = [path.parent for path in _files(folder) if path.name in ("saved_model.pb", "saved_model.pbtxt")]
    numbered = [path for path in found if path.name.isascii() and path.name.isdigit() and path != folder]
    if numbered:
        named = [path for path in numbered if path.parent.name == name]
        _only_one({path.parent for path in named or numbered}, folder, "models")
        path = max(named or numbered, key=lambda path: int(path.name))
        return Found(path, path.parent.name, path.name)
    files = [path for path in _files(folder) if path.suffix in KERAS]
    named = [path for path in found + files if name in (path.name, path.stem)]
    candidates = named or found or files
    if not candidates:
        there = sorted(path.name for path in folder.iterdir())
        shown = ", ".join(there[:_SHOWN]) + (", ..." if len(there) > _SHOWN else "") if there else "nothing"
        raise ConfigError(f"found no model in {folder}, but {shown}; {WANTED}")
    _only_one(set(candidates), folder, "models without a number")
    path = candidates[0]
    return Found(path, path.stem if path.is_file() else path.name, "1")


def _files(folder: Path) -> list[Path]:
    """Return the files of a model folder, without the user's code and hidden files."""
    files = []
    for path, folders, names in os.walk(folder):
        here = Path(path)
        depth = len(here.relative_to(folder).parts)
        folders[:] = sorted(name for name in folders if not name.startswith(".") and depth < _DEEPEST)
        if here == folder and "code" in folders:
            folders.remove("code")
        files += [here / name for name in sorted(names) if not name.startswith(".")]
    return files


def _only_one(found: set[Path], folder: Path, what: str) -> None:
    if len(found) > 1:
        names = ", ".join(sorted(str(path.relative_to(folder)) for path in found)[:_SHOWN])
        wanted = "wanted one, or its name in SAGEMAKER_TFS_DEFAULT_MODEL_NAME"
        raise ConfigError(f"found {len(found)} {what} in {folder}: {names}; {wanted}")
