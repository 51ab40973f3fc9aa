raise ImportError(
    "smdistributed.dataparallel.torch is not covered: this image trains TensorFlow. Use "
    "smdistributed.dataparallel.tensorflow or horovod.tensorflow, or an image with PyTorch",
    name=__name__,
)
