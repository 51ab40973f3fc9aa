"""Search an image classifier by AutoKeras on each host, and export the best one."""

import tempfile

import autokeras as ak
import keras
import numpy as np
from shown import agree, falls, loads, model_dir

draws = np.random.default_rng(0)
labels = draws.integers(0, 2, 160)
images = (draws.normal(size=(160, 16, 16, 1)) + labels[:, None, None, None]).astype("float32")
inputs = ak.ImageInput()
hidden = ak.ConvBlock(kernel_size=3, num_blocks=1, num_layers=1)(ak.Normalization()(inputs))
outputs = ak.ClassificationHead(loss="binary_crossentropy")(ak.DenseBlock(num_layers=1)(hidden))
search = ak.AutoModel(inputs, outputs, max_trials=2, directory=tempfile.mkdtemp(), overwrite=True, seed=1)
found = search.fit(images, labels, validation_split=0.2, epochs=4, batch_size=16, verbose=0).history["loss"]
falls(found[0], found[-1])
model = search.export_model()
agree(model.get_weights())
path = str(model_dir() / "best.keras")
model.save(path)
loaded = keras.models.load_model(path, custom_objects=ak.CUSTOM_OBJECTS)
loads(model.predict(images[:4], verbose=0), loaded.predict(images[:4], verbose=0))
