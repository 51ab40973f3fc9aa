"""Draws circles, squares and triangles, with COCO's annotations: a data set that anybody can make.

    python draw_shapes.py --output data/shapes

Needs NumPy only. Shapes have any color and lie on any ground, one partly over another, and noise lies over all. What is
seen of a whole shape is annotated as a polygon, of a partly hidden one as run lengths; now and then there is a heap of
small ones that are annotated as a crowd.
"""

import argparse
import json
import struct
import zlib
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

NAMES = ("circle", "square", "triangle")
CORNERS = {"circle": 32, "square": 4, "triangle": 3}
LEAST_SEEN = 0.4  # of a shape; of others too little is left to tell what they are


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="of the data set; made if need be")
    parser.add_argument("--training", type=int, default=480, help="images to learn from (default: %(default)s)")
    parser.add_argument("--validation", type=int, default=48, help="images to judge by (default: %(default)s)")
    parser.add_argument("--size", type=int, default=128, help="pixels of a side (default: %(default)s)")
    parser.add_argument("--shapes", type=int, default=4, help="most shapes of an image (default: %(default)s)")
    parser.add_argument("--crowds", type=float, default=0.1, help="share of images with a crowd (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    for number, (split, count) in enumerate((("train", args.training), ("val", args.validation))):
        draw_split(args, split, count, np.random.default_rng([args.seed, number]))
        print(f"draw_shapes: {count} images in {args.output / split}")


def draw_split(args, split, count, random):
    """Write `count` images and their annotations."""
    (args.output / split).mkdir(parents=True, exist_ok=True)
    (args.output / "annotations").mkdir(exist_ok=True)
    images, annotations = [], []
    for number in range(1, count + 1):
        name = f"{number:06d}.png"
        pixels, objects = draw(args, random)
        (args.output / split / name).write_bytes(png(pixels))
        images.append({"id": number, "file_name": name, "height": args.size, "width": args.size})
        annotations += [{"id": len(annotations) + i, "image_id": number, **each} for i, each in enumerate(objects, 1)]
    categories = [{"id": number, "name": name, "supercategory": "shape"} for number, name in enumerate(NAMES, 1)]
    content = {"images": images, "annotations": annotations, "categories": categories}
    (args.output / "annotations" / f"instances_{split}.json").write_text(json.dumps(content))


def draw(args, random):
    """Return (pixels [size, size, 3], annotations) of one image."""
    size = args.size
    pixels = ground(size, random)
    shapes = []  # back to front
    if random.random() < args.crowds:
        name, middle = NAMES[random.integers(3)], random.uniform(0.2, 0.8, 2) * size
        heap = np.zeros([size, size], bool)
        for _ in range(12):
            piece = inside(corners_of(name, middle + random.normal(0, 0.07, 2) * size, 0.04 * size, 0.0), size)
            pixels[piece] = random.uniform(0, 255, 3)
            heap |= piece
        shapes.append(Shape(name, None, heap, heap))
    for _ in range(random.integers(1, args.shapes + 1)):
        name, radius = NAMES[random.integers(3)], random.uniform(0.09, 0.24) * size
        middle = random.uniform(radius, size - radius, 2)
        corners = corners_of(name, middle, radius, random.uniform(-0.4, 0.4))
        mask = inside(corners, size)
        if any((each.seen & ~mask).sum() < LEAST_SEEN * each.whole.sum() for each in shapes):
            continue
        shapes = [replace(each, seen=each.seen & ~mask) for each in shapes] + [Shape(name, corners, mask, mask)]
        color = random.uniform(0, 255, 3)
        while np.abs(color - pixels[mask].mean(axis=0)).max() < 60:  # else nobody would see it
            color = random.uniform(0, 255, 3)
        pixels[mask] = color
    pixels = np.clip(pixels + random.normal(0, 8, pixels.shape), 0, 255).astype(np.uint8)
    return pixels, [annotation(each, size) for each in shapes]


@dataclass(frozen=True)
class Shape:
    """A shape, or a crowd of them, which has no corners. `whole`, `seen`: masks [size, size]."""

    name: str
    corners: np.ndarray | None
    whole: np.ndarray
    seen: np.ndarray


def ground(size, random):
    """Return pixels [size, size, 3] that run from one color to another."""
    way = np.linspace(0, 1, size)[:, None] * random.uniform(-1, 1) + np.linspace(0, 1, size) * random.uniform(-1, 1)
    return random.uniform(40, 215, 3) + way[:, :, None] * random.uniform(-60, 60, 3)


def corners_of(name, middle, radius, turn):
    """Return the corners [n, 2], (y, x), of a shape within `radius` pixels of its middle (y, x), turned by radians."""
    count = CORNERS[name]
    angles = turn + np.pi / 4 * (name == "square") + 2 * np.pi * np.arange(count) / count
    return np.asarray(middle) + radius * np.stack([-np.cos(angles), np.sin(angles)], axis=1)


def inside(corners, size):
    """Return [size, size]: which pixels' centers a convex shape contains, its corners going round clockwise."""
    ys, xs = np.mgrid[:size, :size] + 0.5
    mask = np.ones([size, size], bool)
    for (y1, x1), (y2, x2) in zip(corners, np.roll(corners, -1, axis=0), strict=True):
        mask &= (x2 - x1) * (ys - y1) - (y2 - y1) * (xs - x1) >= 0
    return mask


def annotation(shape, size):
    """Return COCO's description of what is seen of a shape."""
    ys, xs = np.nonzero(shape.seen)
    if shape.corners is not None and (shape.seen == shape.whole).all():
        segmentation = [np.round(shape.corners[:, ::-1], 2).ravel().tolist()]
    else:
        segmentation = {"size": [size, size], "counts": run_lengths(shape.seen)}
    return {
        "category_id": NAMES.index(shape.name) + 1,
        "segmentation": segmentation,
        "bbox": [int(xs.min()), int(ys.min()), int(np.ptp(xs)) + 1, int(np.ptp(ys)) + 1],
        "area": int(shape.seen.sum()),
        "iscrowd": int(shape.corners is None),
    }


def run_lengths(mask):
    """Return how many pixels are outside, then inside, then outside ... going down column by column."""
    flat = np.concatenate([[False], mask.T.ravel()])
    changes = np.flatnonzero(flat[1:] != flat[:-1])
    return np.diff(np.concatenate([[0], changes, [mask.size]])).tolist()


def png(pixels):
    """Return pixels [height, width, 3] as a PNG file."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    height, width, _ = pixels.shape
    rows = np.concatenate([np.zeros([height, 1], np.uint8), pixels.reshape(height, -1)], axis=1)  # 0: no filter
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)  # 8 bits of red, green, blue
    parts = [(b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes())), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*each) for each in parts)


if __name__ == "__main__":
    main()
