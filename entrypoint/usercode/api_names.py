"""List the names of calls by what they do for a script.

Most are patterns for `matches` of source.py: `.fit` matches every name that ends with it, `horovod.*` a whole name.
"""


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# --- training together ---
HOROVOD = ("horovod.*", "smdistributed.dataparallel.*")
WORKERS = (".MultiWorkerMirroredStrategy", ".CollectiveAllReduceStrategy")
SERVERS = (".ParameterServerStrategy", ".ParameterServerStrategyV2", ".ClusterCoordinator")
SERVERS_OF_TF1 = (".replica_device_setter",)
JOINS_JAX = (".initialize_jax", "jax.distributed.initialize", ".distribution.initialize")
PROCESSES = (*JOINS_JAX, ".distribution.DataParallel")
SESSIONS = (".MonitoredTrainingSession", ".train_and_evaluate", "tensorflow.*estimator.*", ".replica_device_setter")
ONE_HOST = (".MirroredStrategy", ".OneDeviceStrategy", ".get_strategy", ".CentralStorageStrategy")
TRAINS = (".fit", ".GradientTape", ".minimize", ".train", ".train_on_batch", ".apply_gradients")
AVERAGES = ("*Distributed*Optimizer", "*Distributed*GradientTape", "*allreduce*")
BROADCASTS = _names("""
    .broadcast .broadcast_variables .broadcast_global_variables .broadcast_object .broadcast_weights
    .BroadcastGlobalVariablesCallback .BroadcastGlobalVariablesHook .load_model
""")
PINS_GPUS = (".pin_gpu", ".set_visible_devices", ".visible_device_list", ".share_gpus")

# --- data; datasets made in memory are left out: a rank may generate its own ---
READS_ROWS = _names("""
    .TFRecordDataset .TextLineDataset .FixedLengthRecordDataset .CsvDataset .make_csv_dataset .list_files
    .from_generator .PipeModeDataset .image_dataset_from_directory .text_dataset_from_directory .flow_from_directory
    .load_data .read_csv numpy.load
""")
OUR_SHARDS = ("sagemaker_tf_data.shard", "sagemaker_tf_data.part")
SHARDS = _names("""
    sagemaker_tf_data.sharding* sagemaker_tf_data.pipe_dataset .shard .num_shards .num_input_pipelines .Partition
    .send_to_data_service .experimental_distribute_dataset .distribute_datasets_from_function
""")
EVENS_STEPS = (".take", ".repeat", ".end_together", ".even_steps", "horovod.*.join", ".drop_remainder", ".JoinOp")

# Whose first argument is a file that must be there.
READS_FILES = _names("""
    open tensorflow.io.gfile.GFile pathlib.Path numpy.load* numpy.genfromtxt pandas.read_* joblib.load
    tensorflow.data.TextLineDataset tensorflow.data.TFRecordDataset *.models.load_model .load_weights
""")

# --- models and checkpoints ---
SAVES = _names("""
    .save .export_saved_model .saved_model.save .save_weights .save_model .write_out .simple_save .export
""")
# Whose calls of these names save something else than models.
NOT_MODELS = r"(numpy|np|PIL|plt|matplotlib|torch|pickle|joblib|[iI]mage|fig|img|tensorflow\.io|json)\b"
OUR_MANAGER = "sagemaker_tf_data.checkpoints*"
WRITES_CHECKPOINTS = _names("""
    sagemaker_tf_data.checkpoints* .ModelCheckpoint .BackupAndRestore .CheckpointManager .MonitoredTrainingSession
    .Saver .train.Checkpoint .CheckpointSaverHook .save_weights
""")
READS_CHECKPOINTS = _names("""
    .restore .latest_checkpoint .load_weights .BackupAndRestore .load_model .restore_or_initialize
    .MonitoredTrainingSession .load_checkpoint .read
""")

# Calls by which a file may still get to another place.
MOVES = _names("""
    .copytree .copy .copy2 .copyfile .move .rename .replace .make_archive .symlink .symlink_to .upload_file
    .upload_fileobj .put_object .upload .upload_data .log_artifact .log_artifacts tarfile.* zipfile.* mlflow.* wandb.*
    boto3.* s3fs.* fsspec.* sagemaker.* huggingface_hub.* google.* subprocess.* os.system os.popen
""")

# --- last words of names ---
LOGS = ("print", "info", "warning", "debug", "log", "say", "error", "exception", "critical")
# What else reports an exception, or prepares such a report.
REPORTS = _names("""
    print_exc format_exc str repr format join dumps encode type get getenv open write writelines flush close urlopen
    post publish send end_run finish capture_exception
""")
LEAVES = ("sys.exit", "exit", "quit", "os._exit")  # whole names
STARTS_PROGRAMS = ("subprocess.*", "os.system", "os.popen")

# --- files and addresses: of calls, by the position of the path or the address among their arguments ---
OPENS_FILES = ("open", "gzip.open", "*.gfile.GFile", "*.gfile.open")
# Calls that may get a file's path and put nothing there.
PUTS_NOTHING = (
    *READS_FILES,
    *_names("""
        os.path.* os.environ.* os.getenv os.listdir os.scandir os.walk glob.* .add_argument *.DEFINE_* .parse_args
        .restore .latest_checkpoint .load_checkpoint .load .read .read_text .read_bytes .makedirs .mkdir .exists .format
        .is_dir .is_file .isdir .iterdir .glob .rglob .stat .joinpath .startswith .info .warning .debug .error str print
    """),
)
WRITES_FILES = {
    0: (
        *_names(".cache .save .save_weights .savez .savez_compressed .savetxt .savefig .to_csv .to_parquet .to_pickle"),
        *_names(".to_json .TFRecordWriter .extractall .ModelCheckpoint .CSVLogger os.remove os.rename os.unlink"),
        *OPENS_FILES,
    ),
    1: (".saved_model.save", "shutil.copy*", "shutil.move", "shutil.unpack_archive", "joblib.dump"),
}
MOVES_FILES = (".copytree", ".copy", ".copy2", ".move", ".rename", "boto3.*", *STARTS_PROGRAMS)
FETCHES = {
    **dict.fromkeys(_names("urllib.request.urlopen urllib.request.urlretrieve requests.get requests.post"), 0),
    **{"tensorflow_hub.load": 0, "tensorflow_hub.KerasLayer": 0, "*keras.utils.get_file": 1},
}
