"""List the checks: name, kind of file, severities, and what it finds. The table of docs/doctor.md is made from it."""

FILES = {"launch": "launch script", "request": "request", "script": "training script"}
CHECKS = {
    # --- the launch script ---
    "no-sdk": (
        "launch",
        "error",
        "The launch script imports an SDK that is not installed, so its job cannot be checked.",
    ),
    "launch-failed": ("launch", "error; note after a request", "The launch script raises or exits before its end."),
    "no-request": ("launch", "error", "The launch script ends without a training job."),
    "distribution-dropped": ("launch", "error", "`distribution=` of an SDK v2 class that drops it: `Estimator`."),
    "argument-dropped": ("launch", "warning", "Another argument that no class of the SDK reads."),
    "argument-renamed": ("launch", "note", "Arguments with the names of SDK v1, which v2 still takes."),
    "local-mode": ("launch", "note", "The job is for the SDK's local mode."),
    # --- the request ---
    "api": ("request", "error", "What SageMaker's API would refuse, by botocore's description of it."),
    "job-refused": ("request", "error", "What our launcher refuses at its start, with exit code 78."),
    "job-warning": ("request", "warning", "What our launcher warns of at its start."),
    "plan-note": ("request", "note, warning", "What `entrypoint plan` notes; a warning where data are never read."),
    "not-our-entrypoint": (
        "request",
        "error, warning",
        "`ContainerEntrypoint` or SDK v3's drivers run in place of our launcher.",
    ),
    "command-keeps-sigterm": ("request", "warning", 'SDK v3\'s `command="train"` without `exec`: bash keeps SIGTERM.'),
    "sdk-script-breaks": (
        "request",
        "error",
        "SDK v3's script fails on `'` in a hyperparameter, and on `-` in a channel's name.",
    ),
    "nothing-shared": ("request", "error", "Several hosts without a mode of distribution: each trains alone."),
    "no-code": ("request", "warning", "Neither a hyperparameter nor channel `code` brings the code."),
    "image": ("request", "note", "The image is AWS's."),
    "image-and-gpus": ("request", "warning, note", "GPUs, and an image for CPUs; or the other way round."),
    "hyperparameter-dropped": (
        "request",
        "warning",
        "A `sagemaker_*` hyperparameter that AWS's toolkit reads, and we do not.",
    ),
    "hyperparameter-as-argv": ("request", "note", "A value that AWS's images pass through a shell, and we do not."),
    "encoded-twice": ("request", "warning", "A hyperparameter encoded as JSON twice: the script gets the quotes."),
    "no-checkpoint-config": ("request", "warning", "Spot instances, and no `CheckpointConfig`."),
    "metric-anchored": ("request", "warning", "A metric's `Regex` that begins with `^` or looks for `<stdout>`."),
    "debugger": ("request", "note", "Debugger or its profiler is asked for."),
    "isolated-install": ("request", "warning", "Network isolation, and a `requirements.txt`."),
    # --- the training script: whether it runs ---
    "syntax": ("script", "error", "Code that Python 3 cannot parse."),
    "entry-missing": ("script", "error", "The program is not in the folder of the code."),
    "interpreter-missing": ("script", "warning", "A shell script whose first line asks for what our image lacks."),
    "line-ends": ("script", "note", "A shell script with line ends of Windows."),
    "tf1-name": (
        "script",
        "error",
        "A name of TensorFlow 1 that TensorFlow 2 has elsewhere, by `tf_upgrade_v2`'s table.",
    ),
    "tf-gone": (
        "script",
        "error",
        "`tf.contrib`, `tf.examples`; from TensorFlow 2.16 on `tf.estimator`, and what Keras 3 lacks.",
    ),
    "keras-3-fit": ("script", "error", "`fit` of Keras 3 with parameter servers or several workers."),
    "estimator-never-ends": (
        "script",
        "error",
        "An Estimator beside worker servers, or its `train` with parameter servers.",
    ),
    "ps-xla": (
        "script",
        "error, note",
        "An optimizer of Keras 2 that XLA compiles where there is a GPU, with parameter servers: it needs "
        "`jit_compile=False`.",
    ),
    "module-missing": (
        "script",
        "error, warning, note",
        "An import that neither the image nor the script's folder nor its requirements bring. A warning where that is "
        "not certain; a note where the image is AWS's, and has it.",
    ),
    "command-missing": (
        "script",
        "error, warning, note",
        "A command that the image lacks, in a shell script or started by Python; `git+` in requirements. A warning "
        "where the script goes on without it; a note where the image is AWS's, and has it.",
    ),
    "notebook-left": ("script", "error", "`get_ipython()` in the training script."),
    "argument-unknown": ("script", "error", "A hyperparameter that `parse_args` of the script refuses."),
    "argument-missing": ("script", "error", "A required argument that is no hyperparameter of the job."),
    "argument-refused": (
        "script",
        "error",
        "A value that its `type=` or `choices=` refuses, or a flag that takes none.",
    ),
    "bool-argument": ("script", "warning", "`type=bool`, which takes the text `False` for true."),
    "bool-flag": (
        "script",
        "warning",
        "A boolean of absl with a value: `--flag False` sets it, and absl reads no flag behind the value.",
    ),
    "channel-missing": ("script", "error", "A channel that the job does not have."),
    "variable-missing": ("script", "error", "A variable that only SDK v3's own drivers set."),
    "failure-hidden": ("script", "error, warning", "An exception is caught, and the script exits with 0, or goes on."),
    # --- whether it trains on all hosts ---
    "no-strategy": ("script", "error", "The mode's strategy is missing: each process trains alone."),
    "hvd-no-init": ("script", "error", "Horovod without `init()`."),
    "hvd-no-average": (
        "script",
        "error",
        "Horovod without an optimizer, tape or allreduce of its own: nothing is averaged.",
    ),
    "hvd-no-broadcast": ("script", "warning", "Horovod without a broadcast from rank 0."),
    "hvd-no-pin": (
        "script",
        "error, warning",
        "Ranks that do not choose one GPU each: they share the first, or each takes all.",
    ),
    "ranks-and-gpus": ("script", "error", "Horovod, and more ranks on a host than it has GPUs: NCCL refuses that."),
    "gpus-idle": ("script", "warning", "Several GPUs on a host, one process, and no strategy for them: one GPU works."),
    "tf-config-written": ("script", "note", "The script writes its own TF_CONFIG."),
    "host-name": ("script", "warning", "A host's name, such as `algo-1`, in the script."),
    "ps-branch": ("script", "note", "A branch for `ps` tasks, which do not run the script by default."),
    # --- its data ---
    "no-shards": ("script", "warning, note", "All ranks read all of the data."),
    "shards-twice": (
        "script",
        "warning",
        "`ShardedByS3Key`, and `shard(size, rank)` on top: most of the data is never read.",
    ),
    "attributes-missing": (
        "script",
        "warning",
        "`pipe_dataset` of a manifest with several `AttributeNames`, without `attributes=` or with other ones: the "
        "records of an example are dealt out apart.",
    ),
    "uneven-ranks": ("script", "warning, note", "Nothing makes ranks take the same number of steps."),
    "batch-size": ("script", "note", "The batch size is that of all replicas together."),
    "learning-rate": ("script", "note", "The learning rate does not depend on the number of ranks."),
    "threads": ("script", "note", "A number of threads of the script's own, which overrides the launcher's."),
    # --- what it saves ---
    "all-save": ("script", "warning", "Every process saves under the same name."),
    "chief-saves-alone": (
        "script",
        "warning",
        "MultiWorkerMirrored: only the chief calls `save`, which waits for all.",
    ),
    "no-checkpoint": ("script", "warning, note", "No checkpoints in the folder that SageMaker keeps."),
    "no-resume": ("script", "warning", "Checkpoints are written and never read."),
    "checkpoint-elsewhere": (
        "script",
        "warning",
        "Checkpoints are written to a folder that SageMaker does not keep.",
    ),
    "no-sigterm": ("script", "note", "The script does not handle SIGTERM."),
    "no-model": ("script", "warning", "Nothing is saved to `SM_MODEL_DIR`."),
    "model-dir-s3": ("script", "warning", "`--model_dir` is an address in S3, which TensorFlow cannot write to."),
    "s3-path": ("script", "warning", "`s3://` without `tensorflow_io`."),
    "path": ("script", "warning, note", "A path of one machine, such as `/home/...`."),
}


def table() -> str:
    """Return the checks as Markdown tables, one for each kind of file."""
    made = []
    for kind in dict.fromkeys(where for where, _, _ in CHECKS.values()):
        rows = [f"| in the {FILES[kind]} | severity | finds |", "|---|---|---|"]
        rows += [f"| `{name}` | {how} | {text} |" for name, (where, how, text) in CHECKS.items() if where == kind]
        made.append("\n".join(rows))
    return "\n\n".join(made)
