"""Provide what a case with an example takes: its modules, their imports, and invented data, made once."""

import functools
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DATA = {  # example: how its data is made, in a folder that is added
    "deepfm": ("make_rows.py", "--rows", "4000", "--shards", "2", "--output"),
    "maskrcnn": ("draw_shapes.py", "--training", "8", "--validation", "2", "--size", "64", "--output"),
}


def put(example: str, code: Path, data: Path) -> None:
    """Fill both folders. The code includes all that it imports, so that no side has to install anything."""
    made = Path(_made(example).name)
    for modules in (ROOT / "examples" / example).glob("*.py"):
        shutil.copy(modules, code)
    shutil.copytree(ROOT / "sagemaker_tf_data", code / "sagemaker_tf_data", ignore=shutil.ignore_patterns("__py*"))
    shutil.copytree(made / "libraries", code, dirs_exist_ok=True)
    shutil.copytree(made / "data", data)


@functools.cache
def _made(example: str) -> "tempfile.TemporaryDirectory[str]":
    folder, source = tempfile.TemporaryDirectory(prefix="side-material-"), ROOT / "examples" / example
    program, *options = DATA[example]
    commands = [[str(source / program), *options, f"{folder.name}/data"]]
    (Path(folder.name) / "libraries").mkdir()
    if (needs := source / "requirements.txt").exists():
        commands.append(
            ["-m", "pip", "install", "-q", "--no-deps", "-r", str(needs), "--target", f"{folder.name}/libraries"]
        )
    for command in commands:
        subprocess.run([sys.executable, *command], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    return folder
