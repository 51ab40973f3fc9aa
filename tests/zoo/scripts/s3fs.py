"""Train by Horovod on objects of S3 that s3fs reads, and keep the model there; moto plays S3 on each host."""

import numpy as np
import s3fs
import tensorflow as tf
from moto.server import ThreadedMotoServer
from shown import HOSTS, for_horovod, loads, model_dir, rank, trains

server = ThreadedMotoServer("127.0.0.1", 0)
server.start()
address = "http://{}:{}".format(*server.get_host_and_port())
s3 = s3fs.S3FileSystem(key="key", secret="secret", endpoint_url=address, client_kwargs={"region_name": "eu-west-1"})
s3.mkdir("rows")
for number in range(4):
    with s3.open(f"rows/part-{number}.npy", "wb") as file:
        np.save(file, np.random.default_rng(number).normal(size=(256, 3)).astype("float32"))
parts = []
for path in sorted(s3.glob("rows/part-*.npy"))[rank() :: HOSTS]:
    with s3.open(path, "rb") as file:
        parts.append(np.load(file))
x = np.concatenate(parts)
y = x @ np.array([[1], [2], [3]], "float32")
model, callbacks = for_horovod(tf.keras.Input((3,)), tf.keras.layers.Dense(16, "relu"), tf.keras.layers.Dense(1))
trains(model, x, y, epochs=5, callbacks=callbacks)
path = model_dir() / "model.keras"
model.save(path)
s3.put(str(path), "rows/model.keras")
s3.get("rows/model.keras", "/tmp/again.keras")
again = tf.keras.models.load_model("/tmp/again.keras", compile=False)
loads(model.predict(x[:8], verbose=0), again.predict(x[:8], verbose=0))
server.stop()
