"""Give training scripts their channels, shards, Pipe mode, even ranks, checkpoints, and marks for the monitor.

TensorFlow and jax are imported only by functions that use them.
"""

from sagemaker_tf_data.channels import Channel, Part, all_channels, channel, first_of, part
from sagemaker_tf_data.errors import DataError
from sagemaker_tf_data.evenness import count_records, end_together, even_steps
from sagemaker_tf_data.gpus import pin_gpu
from sagemaker_tf_data.jax_processes import initialize_jax
from sagemaker_tf_data.marks import keras_callback, log_metrics, mark, tell_weights, timed
from sagemaker_tf_data.pipe import pipe_dataset
from sagemaker_tf_data.recordio_datasets import image_records, protobuf_records
from sagemaker_tf_data.serving import serve_pipes
from sagemaker_tf_data.sharding import file_names, files, shard

__all__ = [
    "Channel",
    "DataError",
    "Part",
    "all_channels",
    "channel",
    "count_records",
    "end_together",
    "even_steps",
    "file_names",
    "files",
    "first_of",
    "image_records",
    "initialize_jax",
    "keras_callback",
    "log_metrics",
    "mark",
    "part",
    "pin_gpu",
    "pipe_dataset",
    "protobuf_records",
    "serve_pipes",
    "shard",
    "tell_weights",
    "timed",
]
