"""State remedies that the doctor, the log, `entrypoint local` and reports have in common, by the doctor's rules.

All other remedies of the doctor are in check/doctor/rules.toml. `${NAME}` stands for a word of the case.
"""

_MESH = (
    "a mesh over all of jax.devices(); with Keras "
    "keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))"
)
REMEDIES = {
    "nothing-shared": (
        'environment={"ENTRYPOINT_MODE": "ps"}, "mwms", "mpi" or "jax"; "single" if each host is to train alone'
    ),
    "image-and-gpus": (
        "an image whose TensorFlow is for GPUs and finds CUDA's libraries (build.sh --gpu), or instances without GPUs"
    ),
    "no-strategy/mwms": (
        "strategy = tf.distribute.MultiWorkerMirroredStrategy(), first of all, and the model in strategy.scope()"
    ),
    "no-strategy/ps": (
        'environment={"ENTRYPOINT_PS_WORKERS": "server"}; strategy = tf.distribute.ParameterServerStrategy('
        "tf.distribute.cluster_resolver.TFConfigClusterResolver()), and the model in strategy.scope()"
    ),
    "no-strategy/jax": f"sagemaker_tf_data.initialize_jax(), first of all; then {_MESH}",
    "estimator-never-ends": "tf.estimator.train_and_evaluate(estimator, train_spec, eval_spec)",
    "model-outside-scope": "with strategy.scope(): ${written}",
    "no-strategy-run": (
        "strategy.run(train_step, args=(batch,)), for each batch of strategy.experimental_distribute_dataset(dataset)"
    ),
    "jax-nothing-shared": _MESH,
    "hvd-no-average": (
        "optimizer = hvd.DistributedOptimizer(optimizer) (of horovod.tensorflow.keras for Keras's fit), or tape = "
        "hvd.DistributedGradientTape(tape)"
    ),
    "hvd-no-pin": "from sagemaker_tf_data import pin_gpu; pin_gpu(), behind hvd.init()",
    "gpus-idle": (
        "strategy = tf.distribute.MirroredStrategy(), and the model in strategy.scope(); or "
        'environment={"ENTRYPOINT_MODE": "mpi"} with Horovod'
    ),
    "tf-config-written/alone": "no TF_CONFIG of its own: the launcher has set one, with all workers",
    "pipe-shared": (
        "a channel for each of them, ${channel}, ${channel}-1 and so on; or one process per host; or FastFile"
    ),
    "no-sigterm": (
        "signal.signal(signal.SIGTERM, stop), where stop saves a checkpoint and exits, or sets a flag that the loop "
        "looks at"
    ),
}
