"""Makes a small set of real images: pieces of the two photographs that come with scikit-learn, a palace and a flower.

    python sample_photos.py photos

gives `photos/training` and `photos/validation`, each with a folder for each class. The pieces to validate with are cut
from the right third of the photographs, those to train on from the rest, so that no pixel is in both.
"""

import argparse
import os
import random
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import sklearn.datasets
import tensorflow as tf

PHOTOS = Path(sklearn.datasets.__file__).parent / "images"


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("output", type=Path, metavar="DIR")
    parser.add_argument("--training", type=int, default=400, help="pieces of each photograph (default: %(default)s)")
    parser.add_argument("--validation", type=int, default=100, help="the same (default: %(default)s)")
    parser.add_argument("--size", type=int, default=96, help="pixels of a side of a piece (default: %(default)s)")
    args = parser.parse_args()

    draw = random.Random(0)
    for name in ("china", "flower"):
        photo = tf.io.decode_jpeg((PHOTOS / f"{name}.jpg").read_bytes(), channels=3)
        border = photo.shape[1] * 2 // 3
        for part, pixels, pieces in (
            ("training", photo[:, :border], args.training),
            ("validation", photo[:, border:], args.validation),
        ):
            folder = args.output / part / name
            folder.mkdir(parents=True, exist_ok=True)
            for number in range(pieces):
                top = draw.randint(0, pixels.shape[0] - args.size)
                left = draw.randint(0, pixels.shape[1] - args.size)
                piece = pixels[top : top + args.size, left : left + args.size]
                (folder / f"{number:04d}.jpg").write_bytes(tf.io.encode_jpeg(piece).numpy())


if __name__ == "__main__":
    main()
