"""Test examples/maskrcnn on exact answers; tests/cluster/test_cluster_maskrcnn.py tests that the model learns."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

np, rle = pytest.importorskip("numpy"), pytest.importorskip("pycocotools.mask")
pytestmark = pytest.mark.tensorflow
ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = MASKRCNN = ROOT / "examples" / "maskrcnn"


@pytest.fixture(scope="module")
def tf():
    return pytest.importorskip("tensorflow")


def floats(values):
    import tensorflow as tf

    return tf.constant(values, tf.float32)


def test_boxes_are_recovered_from_their_offsets(tf, load):
    bx = load("boxes")
    random = np.random.default_rng(0)
    corners, sides = random.uniform(0, 500, [2, 50, 2]), random.uniform(2, 300, [2, 50, 2])
    boxes, references = floats(np.concatenate([corners, corners + sides], axis=-1))
    for scale in ((1.0, 1.0, 1.0, 1.0), (0.1, 0.1, 0.2, 0.2)):
        decoded = bx.decode(bx.encode(boxes, references, scale), references, scale)
        assert decoded.numpy() == pytest.approx(boxes.numpy(), abs=1e-2)
    assert bx.encode(references, references, (1.0,) * 4).numpy() == pytest.approx(np.zeros([50, 4]), abs=1e-5)


def test_pooled_bin_of_a_ramp_has_its_center_value(tf, load):
    """On a ramp, linear interpolation and the mean of a bin are exact."""
    ys, xs = np.mgrid[:20, :24] + 0.5
    ramp = floats(3 * ys - 2 * xs + 7)[None, :, :, None]
    box = [2.3, 3.7, 16.1, 19.2]
    found = load("roi_align").align(ramp, floats([box]), tf.constant([0]), 7).numpy()[0, :, :, 0]
    centers = (np.arange(7) + 0.5) / 7
    wanted = 3 * (box[0] + centers * (box[2] - box[0]))[:, None] - 2 * (box[1] + centers * (box[3] - box[1])) + 7
    assert found == pytest.approx(wanted, abs=1e-3)


def test_pooling_beyond_the_edge_repeats_the_last_cells(tf, load):
    same = tf.ones([1, 8, 8, 1])
    found = load("roi_align").align(same, floats([[0, 0, 8, 8]]), tf.constant([0]), 14).numpy()
    assert found == pytest.approx(np.ones([1, 14, 14, 1]))


def test_each_box_is_pooled_from_the_level_of_its_size_and_order_is_kept(tf, load):
    levels = [
        tf.fill([2, 64 // 2**n, 64 // 2**n, 1], float(n)) + tf.reshape([0.0, 10.0], [2, 1, 1, 1]) for n in range(5)
    ]
    sides = [224, 30, 500, 112, 60]
    boxes = floats([[[0, 0, side, side] for side in sides], [[0, 0, side, side] for side in reversed(sides)]])
    found = load("roi_align").align_levels(levels, boxes, 2, anchor_scale=8.0).numpy()[:, :, 0, 0, 0]
    assert found.tolist() == [[2, 0, 3, 1, 0], [10, 11, 13, 10, 12]]


def test_candidate_in_a_crowd_is_neither_object_nor_background(tf, load):
    sampling = load("sampling")
    candidates = floats([[[0, 0, 10, 10], [50, 50, 60, 60], [90, 90, 99, 99]]])
    objects, classes = floats([[[0, 0, 10, 11], [40, 40, 70, 70], [0, 0, 0, 0]]]), tf.constant([[2, -1, 0]])
    best, overlap, in_crowd = sampling.match(candidates, objects, classes)
    assert best.numpy()[0, 0] == 0 and overlap.numpy()[0] == pytest.approx([10 / 11, 0, 0])
    assert in_crowd.numpy().tolist() == [[False, True, False]]
    assert sampling.is_best_of_any(candidates, objects, classes).numpy().tolist() == [[True, False, False]]


def test_mask_target_is_the_part_within_the_region(tf, load):
    """The object's mask is its left half. The regions: left half, right half, twice the object's size."""
    masks = np.zeros([3, 56, 56], np.uint8)
    masks[:, :, :28] = 1
    regions = floats([[10, 10, 30, 20], [10, 20, 30, 30], [0, 0, 40, 40]])
    found = load("heads").mask_targets(regions, floats([[10, 10, 30, 30]] * 3), tf.constant(masks)).numpy()
    assert found[0].all() and not found[1].any()
    assert found[2].mean() == pytest.approx(1 / 8, abs=0.01) and found[2, 14, 10] == 1 and found[2, 14, 18] == 0


def test_learning_rate_depends_on_optimizer_and_ranks(load):
    def rate(epochs, ranks, **more):
        args = {"learning_rate": 0.01, "batch_size": 2, "epochs": 12.0, "warmup_epochs": 1.0}
        args |= {"schedule": "step", "optimizer": "sgd", **more}
        return load("schedule").learning_rate(epochs, SimpleNamespace(**args), ranks)

    assert [rate(each, 8) for each in (0, 1, 7.9, 8, 11)] == pytest.approx([0.00025, 0.02, 0.02, 0.002, 0.0002])
    assert [rate(each, 1) for each in (0, 1)] == pytest.approx([0.00025, 0.0025])
    assert [rate(1, each, optimizer="adam") for each in (1, 4, 16)] == pytest.approx([0.005, 0.01, 0.02])
    assert [rate(each, 4, schedule="cosine") for each in (1, 6.5, 12)] == pytest.approx([0.01, 0.005, 0])


def test_each_pass_has_every_image_once_for_any_ranks(tf, load):
    coco = load("coco")
    images = list(range(100, 110))

    def steps(begin, ranks, count):
        """Return the images of all ranks, step by step."""
        seen = [[*coco.share(begin, 2, rank, ranks, count)] for rank in range(ranks)]
        in_steps = [rank[2 * step : 2 * step + 2] for step in range(count) for rank in seen]
        return [coco.at(place, images, seed=3) for places in in_steps for place in places]

    row = steps(0, ranks=2, count=5)  # two passes
    assert sorted(row[:10]) == sorted(row[10:]) == images and row[:10] != row[10:]
    assert steps(0, ranks=1, count=10) == row
    assert row[:12] + steps(12, ranks=1, count=4) == row, "a job that goes on with fewer ranks repeats and omits none"


def test_polygons_and_both_run_length_forms_give_equal_masks(tf, load):
    coco, shapes = load("coco"), load("draw_shapes")
    whole = np.zeros([40, 60], np.uint8)
    whole[10:30, 20:50] = 1
    whole[10:20, 35:50] = 0  # an L
    polygon = [[20, 10, 35, 10, 35, 20, 50, 20, 50, 30, 20, 30]]
    counts = {"size": [40, 60], "counts": shapes.run_lengths(whole.astype(bool))}
    packed = rle.encode(np.asfortranarray(whole))
    images = coco.COCO()
    images.imgs = {1: {"height": 40, "width": 60}}
    annotation = {"image_id": 1, "bbox": [20, 10, 30, 20]}
    for form in (polygon, counts, packed):
        square = coco.mask_in_box(images, {**annotation, "segmentation": form}, 56)
        assert square[:28, :28].all() and not square[:27, 29:].any() and square[29:].all()
    two = [[20, 10, 30, 10, 30, 20, 20, 20], [40, 20, 50, 20, 50, 30, 40, 30]]  # an object in two pieces
    assert coco.mask_in_box(images, {**annotation, "segmentation": two}, 60).mean() == pytest.approx(1 / 3, abs=0.02)


def test_mask_is_pasted_at_its_box(tf, load):
    evaluation = load("evaluation")
    whole = np.zeros([50, 70], np.uint8)
    whole[10:38, 20:48] = np.tri(28, dtype=np.uint8)
    assert (evaluation.paste(whole[10:38, 20:48].astype(float), (10, 20, 38, 48), 50, 70) == whole).all()
    assert (
        evaluation.paste(np.ones([28, 28]), (-5, 60, 200, 75), 50, 70).sum() == 50 * 10
    )  # as far as there is an image
    assert not evaluation.paste(np.ones([28, 28]), (60, 80, 70, 90), 50, 70).any()


@pytest.fixture(scope="module")
def drawn(tf, load, tmp_path_factory):
    folder = tmp_path_factory.mktemp("shapes")
    load("draw_shapes").main([f"--output={folder}", "--training=12", "--validation=6", "--size=64", "--crowds=0.5"])
    return folder


@pytest.fixture(scope="module")
def split(drawn, load):
    return load("coco").Split(drawn, "train")


def perfect(split):
    """Return exact detections of all objects, each with score 1."""
    return [
        {
            "image_id": each["image_id"],
            "category_id": each["category_id"],
            "bbox": each["bbox"],
            "segmentation": rle.encode(split.coco.annToMask(each)),
            "score": 0.9,
        }
        for each in split.coco.anns.values()
        if not each["iscrowd"]
    ]


KEY = "mAP({})/IoU=0.5:0.95"


def test_perfect_detections_score_1_and_wrong_ones_0(split, load):
    average = load("evaluation").mean_average_precision
    found = perfect(split)
    for kind in ("bbox", "segm"):
        assert average(split, found)[KEY.format(kind)] == pytest.approx(1)
        assert average(split, [])[KEY.format(kind)] == 0
        wrong = [{**each, "category_id": each["category_id"] % 3 + 1} for each in found]
        assert average(split, wrong)[KEY.format(kind)] < 0.2  # another class: right now and then, where both are
    corner = {"bbox": [0, 0, 1, 1], "segmentation": rle.frPyObjects([[0, 0, 1, 0, 1, 1, 0, 1]], 64, 64)[0]}
    elsewhere = [{**each, **corner} for each in found]
    assert [average(split, elsewhere)[KEY.format(kind)] for kind in ("bbox", "segm")] == [0, 0]


def test_detection_in_a_crowd_does_not_lower_the_score(split, load):
    crowd = next(each for each in split.coco.anns.values() if each["iscrowd"])
    extra = {
        "image_id": crowd["image_id"],
        "category_id": crowd["category_id"],
        "bbox": crowd["bbox"],
        "segmentation": rle.encode(split.coco.annToMask(crowd)),
        "score": 1.0,
    }
    found = load("evaluation").mean_average_precision(split, [extra, *perfect(split)])
    assert [found[KEY.format(kind)] for kind in ("bbox", "segm")] == pytest.approx([1, 1])


def test_detections_become_coco_results(split, load):
    """The image was scaled to twice its size for the network."""
    image = split.images[0]
    batch = {"image": np.array([image]), "scale": np.array([[2.0, 2.0]], np.float32)}
    found = {
        "boxes": np.array([[[20, 40, 60, 100], [0, 0, 0, 0]]], np.float32),
        "classes": np.array([[3, 1]]),
        "scores": np.array([[0.5, 0.0]], np.float32),
        "masks": np.ones([1, 2, 28, 28], np.float32),
        "count": np.array([1]),
    }
    (only,) = load("evaluation").results(split, batch, found)
    assert (only["image_id"], only["category_id"], only["score"]) == (image, 3, 0.5)
    assert only["bbox"] == [20, 10, 30, 20]
    assert split.coco.loadRes([only]).anns[1]["area"] == 600
    json.dumps(only)


def test_metric_definitions_of_the_page_match_log_lines():
    """Each definition matches one place of one line and its number, also behind the launcher's prefix."""
    page = (ROOT / "docs/maskrcnn.md").read_text()
    definitions = dict(re.findall(r'\{"Name": "(.+?)", "Regex": r"(.+?)"\}', page))
    lines = [
        "maskrcnn: epochs=0.502 total_cost: 1.5893 rpn_losses/label_loss: 0.2118 rpn_losses/box_loss: 0.0542 "
        "fastrcnn_losses/label_loss: 0.4792 fastrcnn_losses/box_loss: 0.1906 maskrcnn_loss/maskrcnn_loss: 0.6534 "
        "learning_rate=0.000688 images_per_second=16.92",
        *(
            f"maskrcnn: mAP({kind})/{name}: 0.{number}"
            for number, (kind, name) in enumerate(
                ((kind, name) for kind in ("bbox", "segm") for name in ("IoU=0.5:0.95", "IoU=0.5", "IoU=0.75")), 10
            )
        ),
        "maskrcnn: mAP(segm)/large: -1.0000",
    ]
    log = "".join(f"[algo-1 rank 0] {line}\n" for line in lines)
    values = {name: re.findall(regex, log) for name, regex in definitions.items()}
    assert {name: len(found) for name, found in values.items()} == dict.fromkeys(definitions, 1)
    assert all(float(found[0]) >= 0 for found in values.values())
    assert values["mAP(segm)/IoU=0.5"] == ["0.14"] and values["mAP(segm)/IoU=0.5:0.95"] == ["0.13"]
    assert values["total_cost"] == ["1.5893"]
