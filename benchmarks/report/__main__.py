"""Make the pages and plots in docs/benchmarks, and the figures in the README, from the JSON files of benchmarks.

    python -m benchmarks.report side-by-side.json many-hosts.json

Each FILE is first kept as docs/benchmarks/WHAT.json; then all pages are made anew from all JSON files there.
"""

import argparse
import sys
from pathlib import Path

from benchmarks.report.figures import BadRecord
from benchmarks.report.pages import FOLDER, draw, pages, records, whole

ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("files", type=Path, nargs="*", metavar="FILE", help="JSON that a benchmark wrote")
    options.add_argument("--root", type=Path, default=ROOT, help="where docs/benchmarks and README.md (are to) lie")
    given = options.parse_args()
    folder = given.root / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    try:
        found = records(folder, given.files)
        for path, text in pages(found).items():
            (given.root / path).write_text(whole(path, text, given.root))
            print(path)
    except BadRecord as error:
        sys.exit(str(error))
    for name in draw(folder, found):
        print(f"{FOLDER}/{name}")


if __name__ == "__main__":
    main()
