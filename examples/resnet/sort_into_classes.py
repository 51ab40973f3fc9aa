"""Gives ImageNet's validation images, which come in one folder, a folder for each class, as training has them.

    python sort_into_classes.py ILSVRC2012_img_val --ground-truth LOC_val_solution.csv --output imagenet/validation

Images stay where they are, too: a second name of the same file is made (a hard link), or a copy on another disk.
With `--move` they move. All of it is checked before anything is done; what was interrupted goes on when called again.
To make TFRecord or RecordIO files there is no need for folders: `folder_to_tfrecord.py` takes `--ground-truth` as well.
"""

import argparse
import collections
import filecmp
import shutil
import sys
from pathlib import Path

import ground_truth


def sort(source, output, truth, synsets=None, *, partial=False, move=False, dry_run=False):
    """Put each image of `source` into its class's folder of `output`; return {class: images that are there then}."""
    output = Path(output)
    classes = ground_truth.classes_of(source, truth, synsets, partial, also_in=output)
    targets = {path: output / name / path.name for path, name in classes.items()}
    for path, target in targets.items():
        if target.exists() and not (path.samefile(target) or filecmp.cmp(path, target, shallow=False)):
            raise FileExistsError(f"{target} is another image than {path}: wanted none there, or the same; remove one")
    if not dry_run:
        for path, target in targets.items():
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists():
                _put(path, target, move)
            elif move:
                path.unlink()  # the same image is there
    there = collections.Counter(path.parent.name for path in output.glob("*/*") if not path.name.startswith("."))
    if dry_run:
        there.update(target.parent.name for target in targets.values() if not target.exists())
    return dict(sorted(there.items()))


def _put(path, target, move):
    """Move, link or copy a file, which has its name only when all of it is there."""
    if move and path.stat().st_dev == target.parent.stat().st_dev:
        path.rename(target)
        return
    try:
        target.hardlink_to(path)
    except OSError:  # another disk, or one that has no links
        unfinished = target.with_name(f".{target.name}.tmp")
        shutil.copy2(path, unfinished)
        unfinished.rename(target)
    if move:
        path.unlink()


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("source", metavar="FOLDER", help="has all images, ILSVRC2012_val_00000001.JPEG and so on")
    parser.add_argument("--output", required=True, metavar="DIR", help="gets a folder for each class; made if need be")
    add_ground_truth(parser, required=True)
    parser.add_argument("--move", action="store_true", help="the images leave FOLDER")
    parser.add_argument("--dry-run", action="store_true", help="check all of it, say what would be done, do nothing")
    args = parser.parse_args(argv)
    try:
        there = sort(
            args.source, args.output, args.ground_truth, args.synsets,
            partial=args.partial, move=args.move, dry_run=args.dry_run,
        )  # fmt: skip
    except (OSError, ValueError) as error:
        print(f"sort_into_classes: {error}", file=sys.stderr)
        return 1
    for name, number in there.items():
        print(f"{name}: {number} images")
    print(f"{args.output}: {sum(there.values())} images, {len(there)} classes" + (", if done" if args.dry_run else ""))
    return 0


def add_ground_truth(parser, required=False):
    """Add the arguments that `folder_to_tfrecord.py` has, too."""
    parser.add_argument(
        "--ground-truth", required=required, metavar="FILE",
        help="says the class of each image: LOC_val_solution.csv, or a line for each image",
    )  # fmt: skip
    parser.add_argument(
        "--synsets", metavar="FILE",
        help="names the numbers of ILSVRC2012_validation_ground_truth.txt: the development kit's meta.mat or "
        "map_clsloc.txt, or its classes in its order, one a line",
    )  # fmt: skip
    parser.add_argument("--partial", action="store_true", help="a part of the images of FILE will do")


if __name__ == "__main__":
    sys.exit(main())
