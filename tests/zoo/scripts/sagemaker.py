"""Train by Horovod, and keep the model in S3 by SageMaker's SDK, from within the job; moto plays AWS in the process."""

import tempfile

import boto3
import tensorflow as tf
from moto import mock_aws
from sagemaker.s3 import S3Downloader, S3Uploader, parse_s3_url
from sagemaker.session import Session
from shown import for_horovod, loads, model_dir, trains, weighted_sums

x, y = weighted_sums()
model, callbacks = for_horovod(tf.keras.Input((8,)), tf.keras.layers.Dense(16, "relu"), tf.keras.layers.Dense(1))
trains(model, x, y, epochs=5, callbacks=callbacks)
path = model_dir() / "model.keras"
model.save(path)
with mock_aws():
    session = Session(boto3.Session("key", "secret", region_name="us-east-1"))
    uri = S3Uploader.upload(str(path), f"s3://{session.default_bucket()}/models", sagemaker_session=session)
    assert parse_s3_url(uri)[1].startswith("models")
    assert len(S3Downloader.list(uri, sagemaker_session=session)) == 1
    folder = tempfile.mkdtemp()
    S3Downloader.download(uri, folder, sagemaker_session=session)
again = tf.keras.models.load_model(f"{folder}/model.keras", compile=False)
loads(model.predict(x[:8], verbose=0), again.predict(x[:8], verbose=0))
