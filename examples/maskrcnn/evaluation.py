"""Judge detections by COCO's mAP, with its own pycocotools."""

import contextlib
import io

import numpy as np
from pycocotools import mask as rle
from pycocotools.cocoeval import COCOeval

KINDS = ("bbox", "segm")
# The figures of COCOeval that are told, under the names that tensorpack gives them.
NAMES = ("IoU=0.5:0.95", "IoU=0.5", "IoU=0.75", "small", "medium", "large")


def paste(mask, box, height, width):
    """Return the mask [height, width], 0 or 1, of an image, of what is in its box (y1, x1, y2, x2): [n, n], 0 to 1.

    Between the centers of cells it is interpolated; beyond them it fades out.
    """
    whole = np.zeros([height, width], np.uint8)
    y1, x1, y2, x2 = box
    top, bottom = max(int(np.floor(y1)), 0), min(int(np.ceil(y2)), height)
    left, right = max(int(np.floor(x1)), 0), min(int(np.ceil(x2)), width)
    if bottom > top and right > left:
        rows, columns = _weights(top, bottom, y1, y2, len(mask)), _weights(left, right, x1, x2, len(mask))
        whole[top:bottom, left:right] = rows @ mask @ columns.T >= 0.5
    return whole


def _weights(begin, end, low, high, cells):
    """Return [end - begin, cells]: by how much each cell of (low, high) counts for each pixel."""
    places = (np.arange(begin, end) + 0.5 - low) / max(high - low, 1e-6) * cells - 0.5
    return np.maximum(1 - np.abs(places[:, None] - np.arange(cells)), 0)


def results(split, batch, found):
    """Return COCO's results, a dict for each detection, of a batch of images and what `MaskRCNN.detect` found."""
    batch, found = ({name: np.asarray(each) for name, each in of.items()} for of in (batch, found))
    listed = []
    for row, image in enumerate(batch["image"].tolist()):
        height, width = split.coco.imgs[image]["height"], split.coco.imgs[image]["width"]
        for place in range(int(found["count"][row])):
            box = found["boxes"][row, place] / np.tile(batch["scale"][row], 2)
            y1, x1, y2, x2 = box.tolist()
            mask = rle.encode(np.asfortranarray(paste(found["masks"][row, place], box, height, width)))
            listed.append(
                {
                    "image_id": image,
                    "category_id": split.categories[int(found["classes"][row, place]) - 1],
                    "score": float(found["scores"][row, place]),
                    "bbox": [x1, y1, x2 - x1, y2 - y1],
                    "segmentation": {"size": mask["size"], "counts": mask["counts"].decode()},
                }
            )
    return listed


def mean_average_precision(split, found, images=None):
    """Return COCO's figures by name, `mAP(bbox)/IoU=0.5:0.95` and so on; -1 where there are no such objects."""
    figures = {}
    for kind in KINDS:
        # With boxes among them, pycocotools would judge the size of a mask by its box.
        listed = [{k: v for k, v in each.items() if kind == "bbox" or k != "bbox"} for each in found]
        stats = np.zeros(len(NAMES))
        if listed:
            with contextlib.redirect_stdout(io.StringIO()):  # its own table says the same at greater length
                judge = COCOeval(split.coco, split.coco.loadRes(listed), kind)
                judge.params.imgIds = images or split.images
                judge.evaluate()
                judge.accumulate()
                judge.summarize()
            stats = judge.stats[: len(NAMES)]
        figures |= {f"mAP({kind})/{name}": float(each) for name, each in zip(NAMES, stats, strict=True)}
    return figures
