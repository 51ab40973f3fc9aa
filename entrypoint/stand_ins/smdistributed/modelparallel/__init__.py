raise ImportError(
    "smdistributed.modelparallel is not covered: SageMaker's model-parallel library is not to be had for this image's "
    "TensorFlow. Use data parallelism (horovod.tensorflow, tf.distribute) or parameter servers",
    name=__name__,
)
