"""Makes a small set of real images: pieces of photographs, by default of the two that come with scikit-learn.

    python sample_photos.py photos
    python sample_photos.py photos palace.jpg flower.jpg portrait.jpg

gives `photos/training` and `photos/validation`, each with a folder for each photograph, which is the class of its
pieces. The pieces to validate with are cut from the right third of the photographs, those to train on from the rest,
so that no pixel is in both.
"""

import argparse
import os
import random
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("output", type=Path, metavar="DIR")
    parser.add_argument(
        "photos", type=Path, nargs="*", metavar="PHOTO", help="a JPEG; its name is its class (default: scikit-learn's)"
    )
    parser.add_argument("--training", type=int, default=400, help="pieces of each photograph (default: %(default)s)")
    parser.add_argument("--validation", type=int, default=100, help="the same (default: %(default)s)")
    parser.add_argument("--size", type=int, default=96, help="pixels of a side of a piece (default: %(default)s)")
    args = parser.parse_args()

    draw = random.Random(0)
    for path in args.photos or of_scikit_learn():
        photo = tf.io.decode_jpeg(path.read_bytes(), channels=3)
        border = photo.shape[1] * 2 // 3
        for part, pixels, pieces in (
            ("training", photo[:, :border], args.training),
            ("validation", photo[:, border:], args.validation),
        ):
            folder = args.output / part / path.stem
            folder.mkdir(parents=True, exist_ok=True)
            for number in range(pieces):
                top = draw.randint(0, pixels.shape[0] - args.size)
                left = draw.randint(0, pixels.shape[1] - args.size)
                piece = pixels[top : top + args.size, left : left + args.size]
                (folder / f"{number:04d}.jpg").write_bytes(tf.io.encode_jpeg(piece).numpy())


def of_scikit_learn():
    import sklearn.datasets

    return [Path(sklearn.datasets.__file__).parent / "images" / f"{name}.jpg" for name in ("china", "flower")]


if __name__ == "__main__":
    main()
