"""Measure all pages of docs/benchmarks anew, on one commit, in some three hours of a quiet machine of two cores.

    python -m benchmarks.all                     # what is not measured on this commit yet, then the pages
    python -m benchmarks.all --only profile chaos
    python -m benchmarks.all --list              # the commands and their minutes

Takes Linux, root, Docker and a tree without changes. Exit status 1 if a benchmark failed; the others are measured.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

from benchmarks import machine
from benchmarks.docker import LABEL
from benchmarks.report import FOLDER

IMAGE = "sagemaker-tf-entrypoint:latest"
PYTHON = f"{sys.executable} -m benchmarks."
SIDES = "ours,toolkit,drivers,ours-unwatched,mpirun,horovodrun,horovodrun-gloo,plain"
COMMANDS = {  # what, as its JSON file and page are called: (minutes, command; {json} is the file)
    "profile": (2, f"{PYTHON}profile_start --rounds 5 --json {{json}}"),
    "side-by-side": (82, f"{PYTHON}side_by_side --sides {SIDES} --rounds 2 --resume --json {{json}}"),
    "monitor": (6, f"{PYTHON}monitor --rounds 3 --seconds 20 --json {{json}}"),
    "many-hosts": (4, f"{PYTHON}many_hosts --json {{json}}"),
    "chaos": (45, f"{PYTHON}chaos --seed 20261126 --jobs 2000 --least-faults 2 --at-once 8 "
                  "--minutes 90 --json {json}"),
    "pipe": (3, f"docker run --rm --network none --label {LABEL} -w / -v {machine.ROOT}/benchmarks:/benchmarks:ro "
                f"-v {{folder}}:/out -e {machine.COMMIT} {IMAGE} "
                "python -m benchmarks.pipe --megabytes 800 --rounds 5 --json /out/{name}"),
    "installs": (30, f"{PYTHON}side_by_side --installs --rounds 2 --resume --json {{json}}"),
    "deepfm": (15, f"{PYTHON}deepfm --rounds 2 --resume --json {{json}}"),
}  # fmt: skip
UNFINISHED = machine.ROOT / ".measuring"  # JSON files of benchmarks that have not ended


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=COMMANDS, default=list(COMMANDS))
    parser.add_argument("--list", action="store_true", help="print the commands and end")
    given = parser.parse_args()
    if given.list:
        for what in given.only:
            command = filled(what).replace(sys.executable, "python").replace(f"{machine.ROOT}/", "")
            print(f"{COMMANDS[what][0]:3} min  {command}")
        return 0
    commit = machine.commit()
    if commit.endswith("+"):
        sys.exit("found a tree with changes; wanted a commit alone, of which the figures are")
    UNFINISHED.mkdir(exist_ok=True)
    failed = [what for what in given.only if commit_of(what) != commit and not measured(what, commit)]
    print("\n".join(f"FAILED: {what}" for what in failed))
    return 1 if failed else 0


def filled(what: str) -> str:
    """Return the command with the path of its JSON file filled in."""
    return COMMANDS[what][1].format(json=UNFINISHED / f"{what}.json", folder=UNFINISHED, name=f"{what}.json")


def commit_of(what: str) -> str:
    """Return the commit of the figures in docs/benchmarks; "" if there are none."""
    file = machine.ROOT / FOLDER / f"{what}.json"
    return str(json.loads(file.read_text())["commit"]) if file.exists() else ""


def measured(what: str, commit: str) -> bool:
    """Run a benchmark and write its figures into the pages; return whether it succeeded."""
    print(f"{what}: some {COMMANDS[what][0]} minutes", flush=True)
    file: Path = UNFINISHED / f"{what}.json"
    if file.exists() and json.loads(file.read_text())["commit"] != commit:
        file.unlink()  # of another commit: not to be resumed
    command = shlex.split(filled(what))
    if subprocess.run(command, cwd=machine.ROOT, env=os.environ | {machine.COMMIT: commit}).returncode:
        return False
    subprocess.run([sys.executable, "-m", "benchmarks.report", file], cwd=machine.ROOT, check=True)
    file.unlink()
    return True


if __name__ == "__main__":
    sys.exit(main())
