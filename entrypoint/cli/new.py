"""Run `entrypoint new`: write a project to begin from, which trains, is tested and can be submitted as it is."""

import argparse
import importlib.util
import json
import shutil
import string
import sys
from collections.abc import Mapping
from pathlib import Path

from entrypoint.base.errors import ConfigError

EPILOGS = {
    "new": """\
examples:
  entrypoint new my-project
  entrypoint new my-project --mode mpi --sdk 3
""",
}
MODES = {  # with the modules that train.py needs
    "single": ["tensorflow"],
    "ps": ["tensorflow"],
    "mwms": ["tensorflow"],
    "mpi": ["tensorflow", "horovod"],
    "jax": ["tensorflow", "jax"],
}
ENVIRONMENT = {"ps": {"ENTRYPOINT_PS_WORKERS": "server"}}  # of a job, beside ENTRYPOINT_MODE
SDKS = {"2": ">=2.200,<3", "3": ">=3,<4"}  # with their versions
TEMPLATES = Path(__file__).with_name("new_project")


class _Template(string.Template):
    delimiter = "@@"  # the files themselves contain $ (compose's variables) and @ (versions of actions)


def add_new(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("folder", type=Path, metavar="DIR", help="a new or an empty folder")
    add("--mode", choices=MODES, default="mwms", help="how train.py trains; default: mwms")
    add("--sdk", choices=SDKS, default="2", help="the version of SageMaker's SDK, for submit.py; default: 2")


def run_new(args: argparse.Namespace, environment: Mapping[str, str]) -> int:
    words = _words(args.mode, args.sdk)
    sources = {  # each file of the project: its template, and what it is for
        "src/train.py": (f"train_{args.mode}.py", f"trains in mode {args.mode}, saves checkpoints and the model"),
        "src/model.py": ("model.py", "the data and the network: replace them by yours"),
        "src/requirements.txt": ("requirements.txt", "packages that the image lacks"),
        "submit.py": (f"submit_{args.sdk}.py", f"submits the job by SageMaker's SDK v{args.sdk}"),
        "requirements-submit.txt": ("requirements-submit.txt", "the SDK"),
        "test_train.py": ("test_train.py", "runs the job on this machine, and checks what it has learned"),
        "compose.yaml": ("compose.yaml", "runs the job in containers of docker compose"),
        ".github/workflows/check.yml": ("check.yml", "on GitHub: doctor, test and rehearsal of each change"),
        ".gitignore": ("gitignore", "leaves outputs out of git"),
    }
    _write(args.folder, {path: _filled(template, words) for path, (template, _) in sources.items()})
    lines = [f"{args.folder}: a project of mode {args.mode}"]
    lines += [f"  {path:<28}{purpose}" for path, (_, purpose) in sources.items()]
    installed = sys.platform == "linux" and all(importlib.util.find_spec(name) for name in MODES[args.mode])
    image = f" --image {words['other_image']}" if words["other_image"] else ""
    engine = "" if installed else f" --engine docker{image}"
    activate = Path(sys.executable).with_name("activate")
    is_active = activate.parent == Path(shutil.which("entrypoint", path=environment.get("PATH")) or "").parent
    lines += [
        "next, in this folder:",
        *([] if is_active or not activate.exists() else [f"  . {activate}     # has entrypoint"]),
        f"  entrypoint local src/train.py {words['options']}{engine}",
        *([] if importlib.util.find_spec("pytest") else ["  python -m pip install pytest"]),
        "  python -m pytest",
        "  python -m venv .venv && .venv/bin/pip install -r requirements-submit.txt     # SageMaker's SDK",
        "  entrypoint doctor submit.py --python .venv/bin/python",
        "  .venv/bin/python submit.py --image IMAGE --role ROLE",
    ]
    print("\n".join(lines))
    return 0


def _words(mode: str, sdk: str) -> dict[str, str]:
    """Return the values for the placeholders of the templates, by name."""
    line = "2.21" if mode == "jax" else "2.14"
    hosts = "1" if mode == "single" else "2"
    more = ENVIRONMENT.get(mode, {})
    options = ["--hosts", hosts, "--mode", mode, *(f"--env={name}={value}" for name, value in more.items())]
    words = {
        "mode": mode,
        "modules": json.dumps(MODES[mode]),
        "hosts": hosts,
        "hosts_in_words": "one simulated host" if mode == "single" else "two simulated hosts",
        "options": " ".join(options),
        "job": json.dumps(["src/train.py", *options]),
        "environment": json.dumps({"ENTRYPOINT_MODE": mode, **more}),
        "image": "sagemaker-tf-entrypoint:" + (line if mode == "jax" else "latest"),
        "other_image": f"sagemaker-tf-entrypoint:{line}" if mode == "jax" else "",  # "": that of `entrypoint local`
        "repository": f"my-training:{line}",
        "sdk_versions": SDKS[sdk],
    }
    return words | {"algo_2": "" if mode == "single" else _filled("compose_algo-2.yaml", words)}


def _filled(template: str, words: Mapping[str, str]) -> str:
    return _Template((TEMPLATES / f"{template}.template").read_text("utf-8")).substitute(words)


def _write(folder: Path, texts: Mapping[str, str]) -> None:
    """Write the files, and overwrite none. Raise ConfigError if the folder is not empty, or cannot be written to."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if found := sorted(path.name for path in folder.iterdir()):
            raise ConfigError(f"{folder} is not empty (it has {found[0]}); wanted a new or an empty folder")
        for name, text in texts.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            with (folder / name).open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        place = error.filename or folder
        raise ConfigError(f"{place} cannot be written: {error.strerror}; wanted a new or an empty folder") from None
