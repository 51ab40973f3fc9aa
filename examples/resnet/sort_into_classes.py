"""Gives ImageNet's validation images, which come in one folder, a folder for each class, as training has them.

    python sort_into_classes.py ILSVRC2012_img_val --ground-truth LOC_val_solution.csv --output imagenet/validation

Images stay where they are, too: a second name of the same file is made (a hard link), or a copy on another disk.
With `--move` they move. All of it is checked before anything is done; what was interrupted goes on when called again.
To make TFRecord or RecordIO files there is no need for folders: `folder_to_tfrecord.py` takes `--ground-truth` as well.

Three forms of the ground truth are about:

    LOC_val_solution.csv                        Kaggle's: ILSVRC2012_val_00000001,n01751748 111 108 431 299
    ILSVRC2012_validation_ground_truth.txt      the development kit's: the n-th line is the class of image n, a number
                                                from 1, which `synsets` turns into a name
    imagenet_2012_validation_synset_labels.txt  TensorFlow's: the n-th line is the name of the class of image n

The development kit numbers classes in an order of its own, which its `meta.mat` and `map_clsloc.txt` have. It is not
that of their names: a list by names would give nearly every image a wrong class, and nobody would notice.
"""

import argparse
import collections
import csv
import filecmp
import re
import shutil
import sys
from pathlib import Path

SYNSET = re.compile(r"n\d{8}")


def sort(source, output, truth, synsets=None, *, partial=False, move=False, dry_run=False):
    """Put each image of `source` into its class's folder of `output`; return {class: images that are there then}."""
    output = Path(output)
    classes = classes_of(source, truth, synsets, partial, also_in=output)
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


# ---- which class an image is of --------------------------------------------------------------------------------------


def classes_of(folder, truth, synsets=None, partial=False, also_in=None):
    """Return {path: name of its class} of all images in `folder`.

    Each must be in `truth`, and all that are in it must be here; with `partial` some may be missing. An image that is
    not in `folder` may lie in its class's folder of `also_in` instead, and is left out then.

    Raises:
        ValueError: Images and truth do not fit, or a file is not as above.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is no folder; wanted one with images in it")
    images = {}
    for path in sorted(folder.iterdir()):
        if path.suffix.lower() in (".jpeg", ".jpg") and images.setdefault(path.stem, path) is not path:
            raise ValueError(f"{folder} has {path.name} and {images[path.stem].name}; wanted each image once")
    named = _solution(truth) if Path(truth).suffix == ".csv" else _lines(truth, synsets, images)
    unknown = sorted(set(images) - set(named))
    if unknown:
        raise ValueError(f"{truth} has no class for {_some(unknown)} of {folder}: is it another data set's?")
    there = {(path.parent.name, path.stem) for path in Path(also_in).glob("*/*")} if also_in else set()
    moved = {name for name, of in named.items() if (of, name) in there}
    missing = sorted(set(named) - set(images) - moved)
    if missing and not partial:
        raise ValueError(f"{folder} lacks {_some(missing)} of {truth}: get them, or say --partial to do without")
    if not images and not moved:
        raise ValueError(f"{folder} has no image of {truth}; wanted ILSVRC2012_val_00000001.JPEG and so on in it")
    return {path: named[name] for name, path in images.items()}


def _solution(file):
    """Return {image: class} from Kaggle's CSV: boxes of four numbers, and the class before each."""
    found = {}
    with open(file, newline="") as rows:
        for number, row in enumerate(csv.reader(rows), 1):
            if row[:1] == ["ImageId"] or not row:
                continue
            words = row[1].split() if len(row) == 2 else []
            names = set(words[::5])
            if len(names) != 1 or not SYNSET.fullmatch(*names):
                raise ValueError(
                    f"{file}, line {number}: found {','.join(row)[:80]!r}; wanted an image, and its class before each "
                    "box of four numbers"
                )
            if row[0] in found:
                raise ValueError(f"{file}, line {number}: found {row[0]} a second time; wanted each image once")
            found[row[0]] = names.pop()
    return found


def _lines(file, synsets, images):
    """Return {image: class} from a line for each image."""
    stems = {re.sub(r"\d+$", "", name) for name in images} or {"ILSVRC2012_val_"}
    if len(stems) > 1:
        raise ValueError(f"found images called {_some(sorted(stems))} and a number; wanted all called alike")
    lines = Path(file).read_text().split()
    names = _numbered(synsets) if synsets else {}
    found = {}
    for number, line in enumerate(lines, 1):
        name = line if SYNSET.fullmatch(line) else names.get(line)
        if name is None:
            wanted = (
                f"a number of {synsets}, 1 to {len(names)}" if synsets else "a class's name; numbers need --synsets"
            )
            raise ValueError(f"{file}, line {number}: found {line[:40]!r}; wanted {wanted}")
        found[f"{min(stems)}{number:08d}"] = name
    return found


def _numbered(file):
    """Return {number of a class, as text: its name}."""
    if Path(file).suffix == ".mat":
        from scipy.io import loadmat

        synsets = loadmat(file, squeeze_me=True)["synsets"]
        return {str(one["ILSVRC2012_ID"]): str(one["WNID"]) for one in synsets.ravel()}
    rows = [line.split() for line in Path(file).read_text().splitlines() if line.strip()]
    names = [row[0] for row in rows]
    wrong = next((name for name in names if not SYNSET.fullmatch(name)), None)
    if wrong or not names:
        raise ValueError(f"{file}: found {wrong or 'nothing'!r}; wanted lines that begin with a class, n and 8 digits")
    if all(len(row) > 1 and row[1].isdigit() for row in rows):  # map_clsloc.txt
        return {row[1]: row[0] for row in rows}
    if len(names) >= 1000 and names == sorted(names):
        raise ValueError(
            f"{file} has the classes by name; wanted them as the development kit numbers them, n02119789 first: "
            "take its meta.mat or map_clsloc.txt"
        )
    return {str(number): name for number, name in enumerate(names, 1)}


def _some(names):
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


# ---- the command -----------------------------------------------------------------------------------------------------


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
