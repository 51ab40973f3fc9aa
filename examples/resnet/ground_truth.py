"""Which class an image of a flat folder is of, as ImageNet's validation set has it: files of images and one of truth.

Three forms of that file are about:

    LOC_val_solution.csv                        Kaggle's: ILSVRC2012_val_00000001,n01751748 111 108 431 299
    ILSVRC2012_validation_ground_truth.txt      the development kit's: the n-th line is the class of image n, a number
                                                from 1, which `synsets` turns into a name
    imagenet_2012_validation_synset_labels.txt  TensorFlow's: the n-th line is the name of the class of image n

The development kit numbers classes in an order of its own, which its `meta.mat` and `map_clsloc.txt` have. It is not
that of their names: a list by names would give nearly every image a wrong class, and nobody would notice.
"""

import csv
import re
from pathlib import Path

SYNSET = re.compile(r"n\d{8}")


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
