"""Train StarDist on images of discs; Horovod averages the gradients of its Keras model."""

import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf
from horovod.tensorflow import broadcast_variables
from shown import agree, falls, loads, model_dir
from stardist.models import Config2D, StarDist2D

hvd.init()
draws = np.random.default_rng(hvd.rank())
rows, columns = np.mgrid[:64, :64]
centres = draws.integers(12, 52, (12, 2))
labels = [((rows - y) ** 2 + (columns - x) ** 2 < 100).astype("int32") for y, x in centres]
images = [(each + draws.normal(0, 0.1, each.shape)).astype("float32") for each in labels]
config = Config2D(
    n_rays=16, grid=(2, 2), unet_n_depth=2, unet_n_filter_base=8, net_conv_after_unet=16,
    train_patch_size=(64, 64), train_batch_size=2, train_epochs=3, train_steps_per_epoch=10, train_tensorboard=False,
)  # fmt: skip
folder = model_dir()
model = StarDist2D(config, name="discs", basedir=str(folder))
broadcast_variables(model.keras_model.variables, root_rank=0)
model.prepare_for_training(optimizer=hvd.DistributedOptimizer(tf.keras.optimizers.Adam(0.003)))
found = model.train(images, labels, validation_data=(images[:2], labels[:2])).history["loss"]
falls(found[0], found[-1])
model.keras_model.save_weights(str(folder / "discs/weights_now.h5"))
agree(each.numpy() for each in model.keras_model.trainable_variables)
loaded = StarDist2D(None, name="discs", basedir=str(folder))
loaded.load_weights("weights_now.h5")
loads(model.predict(images[0])[0], loaded.predict(images[0])[0])
