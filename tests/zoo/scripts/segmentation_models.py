"""Train a U-Net of segmentation-models on images of discs, on all hosts by MultiWorkerMirrored."""

import numpy as np
import segmentation_models as sm
import tensorflow as tf
from shown import rank, survives, trains

strategy = tf.distribute.MultiWorkerMirroredStrategy()
draws = np.random.default_rng(rank())
rows, columns = np.mgrid[:32, :32]
centres = draws.integers(8, 24, (32, 2))
masks = np.stack([((rows - y) ** 2 + (columns - x) ** 2 < 36)[..., None] for y, x in centres]).astype("float32")
images = (masks + draws.normal(0, 0.1, (32, 32, 32, 3))).astype("float32")
data = tf.data.Dataset.from_tensor_slices((images, masks)).repeat().batch(8)
with strategy.scope():
    options = {"encoder_weights": None, "decoder_filters": (32, 16, 16, 8, 8)}
    model = sm.Unet("mobilenetv2", input_shape=(32, 32, 3), classes=1, **options)
    loss, metric = sm.losses.bce_jaccard_loss, sm.metrics.iou_score
    model.compile(tf.keras.optimizers.Adam(0.003), loss, metrics=[metric])
trains(model, data, epochs=3, steps_per_epoch=4)
survives(model, images[:4], "unet.h5")
