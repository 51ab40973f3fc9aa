"""List launch scripts of SDK v3 in the manner of public ones, with the right checks and the number of jobs.

Each is a whole program: src/train.py lies beside it. `TRAIN` is that program, unless the script has one of its own.
"""

from dataclasses import dataclass, field

TRAIN = """
import argparse
import os

import horovod.tensorflow.keras as hvd
import tensorflow as tf
from sagemaker_tf_data import file_names, shard


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--learning-rate", type=float, default=0.1)
    return parser.parse_known_args()[0]


def main(args):
    hvd.init()
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    optimizer = tf.keras.optimizers.SGD(args.learning_rate * hvd.size())
    model.compile(hvd.DistributedOptimizer(optimizer), "mse")
    rows = shard(tf.data.TFRecordDataset(file_names("training"))).batch(8)
    start = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    folder = "/opt/ml/checkpoints"
    saved = tf.train.latest_checkpoint(folder)
    if saved:
        model.load_weights(saved)
    keep = [tf.keras.callbacks.ModelCheckpoint(f"{folder}/{{epoch}}")] if hvd.rank() == 0 else []
    model.fit(rows, steps_per_epoch=10, epochs=args.epochs, callbacks=[start, *keep])
    if hvd.rank() == 0:
        model.save(os.path.join(os.environ["SM_MODEL_DIR"], "1"))


if __name__ == "__main__":
    main(arguments())
"""
PAIRS = """
import argparse
import os

import tensorflow as tf
from sagemaker_tf_data import pipe_dataset, shard


def decode(example):
    image = tf.io.decode_jpeg(example["source-ref"], channels=3)
    return tf.image.resize(image, [64, 64]), tf.strings.to_number(example["label"])


class Trainer:
    def __init__(self, args):
        self.args = args
        self.model = tf.keras.Sequential([tf.keras.layers.Flatten(), tf.keras.layers.Dense(1)])

    def rows(self):
        examples = pipe_dataset("train", "RecordIO", ATTRIBUTES)
        return shard(examples).map(decode).batch(self.args.batch_size)

    def run(self):
        self.model.compile("sgd", "mse")
        self.model.fit(self.rows(), epochs=self.args.epochs)
        self.model.save(os.path.join(os.environ["SM_MODEL_DIR"], "1"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=8)
    Trainer(parser.parse_args()).run()
"""


@dataclass(frozen=True)
class Script:
    """A launch script and its labels: all warnings and errors that the doctor must report, and no others."""

    text: str
    wanted: set[str] = field(default_factory=set)
    jobs: int = 1
    train: str = TRAIN
    requirements: str = ""
    sdk: str = "v3"


HEAD = """
import os

from sagemaker.core.helper.session_helper import Session, get_execution_role
from sagemaker.core.training.configs import (
    Channel, CheckpointConfig, Compute, DataSource, FileSystemDataSource, InputData, InstanceGroup, MetricDefinition,
    Networking, OutputDataConfig, S3DataSource, SourceCode, StoppingCondition, Tag, TensorBoardOutputConfig,
)
from sagemaker.train import ModelTrainer
from sagemaker.train.distributed import MPI, Torchrun

image = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/my-training:2.14.1-cpu-py311"
"""
MANIFEST = """
def manifest(name, *attributes):
    where = S3DataSource(
        s3_data_type="AugmentedManifestFile", s3_uri=f"s3://images/{name}.manifest", attribute_names=list(attributes),
        s3_data_distribution_type="FullyReplicated",
    )
    return Channel(channel_name=name, data_source=DataSource(s3_data_source=where), record_wrapper_type="RecordIO")

trainer = ModelTrainer(
    training_image=image, role=get_execution_role(), base_job_name="pictures", training_input_mode="Pipe",
    compute=Compute(instance_type="ml.c5.xlarge", instance_count=1),
    source_code=SourceCode(source_dir="src", command="exec train"),
    hyperparameters={"sagemaker_program": "train.py", "epochs": 2},
)
"""
SCRIPTS = {
    "a quick start without code": Script(
        HEAD
        + """
trainer = ModelTrainer(training_image=image, role="arn:aws:iam::123456789012:role/Training")
train_data = InputData(channel_name="training", data_source="s3://bucket/train")
trainer.train(input_data_config=[train_data])
""",
        {"job-refused"},
        train="print('never seen')\n",
    ),
    "source code and the basic driver": Script(
        HEAD
        + """
sess = Session()
bucket, role = sess.default_bucket(), get_execution_role()
print(f"role {role}, bucket {bucket}, region {sess.boto_region_name}")

source_code = SourceCode(source_dir="src", requirements="requirements.txt", entry_script="train.py")
compute = Compute(instance_type="ml.c5.xlarge", instance_count=1, volume_size_in_gb=30)
trainer = ModelTrainer(
    training_image=image, source_code=source_code, compute=compute, base_job_name="script-mode", role=role,
    sagemaker_session=sess, hyperparameters={"epochs": 5, "learning-rate": 0.05},
    output_data_config=OutputDataConfig(s3_output_path=f"s3://{bucket}/output"),
)
trainer.train(input_data_config=[InputData(channel_name="training", data_source=f"s3://{bucket}/rows")], wait=False)
""",
        {"not-our-entrypoint"},
        requirements="six\n",
    ),
    "Torchrun on two hosts": Script(
        HEAD
        + """
def launch(instances, per_host):
    trainer = ModelTrainer(
        training_image=image, role=get_execution_role(),
        source_code=SourceCode(source_dir="src", entry_script="train.py"),
        compute=Compute(instance_type="ml.c5.4xlarge", instance_count=instances),
        distributed=Torchrun(process_count_per_node=per_host),
        stopping_condition=StoppingCondition(max_runtime_in_seconds=7200),
        tags=[Tag(key="team", value="research")],
    )
    trainer.train([InputData(channel_name="training", data_source="s3://bucket/rows")], logs=False)
    return trainer

if __name__ == "__main__":
    launch(2, 4)
""",
        {"not-our-entrypoint"},
    ),
    "MPI, a channel with a hyphen and a quote": Script(
        HEAD
        + """
hyperparameters = {"epochs": 1, "title": "the editor's choice"}
trainer = ModelTrainer(
    training_image=image, role=get_execution_role(), hyperparameters=hyperparameters,
    source_code=SourceCode(source_dir="src", entry_script="train.py"),
    compute=Compute(instance_type="ml.c5.xlarge", instance_count=2),
    distributed=MPI(process_count_per_node=1, mpi_additional_options=["-x", "HOROVOD_TIMELINE=/tmp/t.json"]),
)
channels = {"training": "s3://bucket/rows", "hold-out": "s3://bucket/rest"}
trainer.train([InputData(channel_name=name, data_source=where) for name, where in channels.items()])
""",
        {"not-our-entrypoint", "sdk-script-breaks"},
    ),
    "command train, in front of exec": Script(
        HEAD
        + """
trainer = ModelTrainer(
    training_image=image, role=get_execution_role(), environment={"ENTRYPOINT_MODE": "mpi"},
    source_code=SourceCode(source_dir="src", command="train"),
    compute=Compute(instance_type="ml.c5.xlarge", instance_count=2),
    hyperparameters={"sagemaker_program": "train.py", "epochs": 4},
)
trainer.train([InputData(channel_name="training", data_source="s3://bucket/rows")])
""",
        {"command-keeps-sigterm"},
    ),
    "exec train on spot instances in a VPC": Script(
        HEAD
        + """
class Job:
    '''One training, with everything that a platform team asks for.'''

    def __init__(self, name, instances):
        self.trainer = ModelTrainer(
            training_image=image, role=get_execution_role(), base_job_name=name,
            environment={"ENTRYPOINT_MODE": "mpi", "TF_CPP_MIN_LOG_LEVEL": "1"},
            source_code=SourceCode(source_dir="src", command="exec train"),
            compute=Compute(
                instance_type="ml.c5.xlarge", instance_count=instances, enable_managed_spot_training=True,
            ),
            networking=Networking(
                subnets=["subnet-0a1b2c3d"], security_group_ids=["sg-0a1b2c3d"],
                enable_inter_container_traffic_encryption=True,
            ),
            stopping_condition=StoppingCondition(max_runtime_in_seconds=3600, max_wait_time_in_seconds=7200),
            checkpoint_config=CheckpointConfig(s3_uri="s3://bucket/checkpoints"),
            hyperparameters={"sagemaker_program": "train.py", "epochs": 10},
        ).with_metric_definitions([MetricDefinition(name="loss", regex="loss: ([0-9.]+)")])

    def start(self):
        self.trainer.train([InputData(channel_name="training", data_source="s3://bucket/rows")], wait=True)
        return self.trainer._latest_training_job.training_job_name

print(Job("rows", 2).start())
""",
    ),
    "spot instances without checkpoints, and an anchored metric": Script(
        HEAD
        + """
trainer = ModelTrainer(
    training_image=image, role=get_execution_role(), environment={"ENTRYPOINT_MODE": "mpi"},
    source_code=SourceCode(source_dir="src", command="exec train"),
    compute=Compute(instance_type="ml.c5.xlarge", instance_count=2, enable_managed_spot_training=True),
    stopping_condition=StoppingCondition(max_runtime_in_seconds=3600, max_wait_time_in_seconds=3600),
    hyperparameters={"sagemaker_program": "train.py"},
)
metrics = [("train:loss", "^loss: ([0-9.]+)"), ("val:loss", "val_loss: ([0-9.]+)")]
trainer = trainer.with_metric_definitions([MetricDefinition(name=name, regex=regex) for name, regex in metrics])
trainer.with_tensorboard_output_config(TensorBoardOutputConfig(s3_output_path="s3://bucket/boards"))
trainer.train([InputData(channel_name="training", data_source="s3://bucket/rows")], logs=False)
""",
        {"no-checkpoint-config", "metric-anchored"},
    ),
    "isolated, with requirements": Script(
        HEAD
        + """
trainer = ModelTrainer(
    training_image=image, role=get_execution_role(), environment={"ENTRYPOINT_MODE": "mpi"},
    source_code=SourceCode(source_dir="src", command="exec train"),
    networking=Networking(enable_network_isolation=True),
    compute=Compute(instance_type="ml.c5.xlarge", instance_count=2),
    hyperparameters={"sagemaker_program": "train.py"},
)
trainer.train([InputData(channel_name="training", data_source="s3://bucket/rows")])
""",
        {"isolated-install"},
        requirements="six\n",
    ),
    "code as a channel, on a file system": Script(
        HEAD
        + """
where = FileSystemDataSource(
    file_system_id="fs-0123456789abcdef0", file_system_type="FSxLustre", directory_path="/fsx/rows",
    file_system_access_mode="ro",
)
inputs = [InputData(channel_name="training", data_source=where), InputData(channel_name="code", data_source="src")]
trainer = ModelTrainer(
    training_image=image, role=get_execution_role(), environment={"ENTRYPOINT_MODE": "mpi"},
    networking=Networking(subnets=["subnet-0a1b2c3d"], security_group_ids=["sg-0a1b2c3d"]),
    compute=Compute(instance_type="ml.c5.xlarge", instance_count=2, keep_alive_period_in_seconds=600),
    hyperparameters={"sagemaker_program": "train.py", "epochs": 1}, input_data_config=inputs,
)
trainer.train()
""",
    ),
    "two hosts and no way of distributing": Script(
        HEAD
        + """
common = dict(
    training_image=image, role=get_execution_role(), compute=Compute(instance_type="ml.c5.xlarge", instance_count=2),
    hyperparameters={"sagemaker_program": "train.py"},
)
data = [InputData(channel_name="training", data_source="s3://bucket/rows")]
ModelTrainer(**common).train([*data, InputData(channel_name="code", data_source="src")])
""",
        {"nothing-shared"},
    ),
    "a dry run, hyperparameters of a file": Script(
        HEAD
        + """
import json, pathlib
pathlib.Path("hp.json").write_text(json.dumps({"sagemaker_program": "train.py", "epochs": 2}))
trainer = ModelTrainer(
    training_image=image, role=get_execution_role(), environment={"ENTRYPOINT_MODE": "mpi"},
    source_code=SourceCode(source_dir="src", command="exec train"), hyperparameters="hp.json",
    compute=Compute(instance_type="ml.c5.xlarge", instance_count=2),
)
data = [InputData(channel_name="training", data_source="s3://bucket/rows")]
trainer.train(data, dry_run=True)
trainer.train(data)
""",
    ),
    "instance groups": Script(
        HEAD
        + """
groups = [InstanceGroup(instance_group_name=f"g{at}", instance_type="ml.c5.xlarge", instance_count=1) for at in (1, 2)]
trainer = ModelTrainer(
    training_image=image, role=get_execution_role(), environment={"ENTRYPOINT_MODE": "mpi"},
    source_code=SourceCode(source_dir="src", command="exec train"), compute=Compute(instance_groups=groups),
    hyperparameters={"sagemaker_program": "train.py"},
)
trainer.train([InputData(channel_name="training", data_source="s3://bucket/rows")])
""",
    ),
    "pairs in Pipe mode, dealt out apart": Script(
        HEAD + MANIFEST + 'trainer.train([manifest("train", "source-ref", "label")])\n',
        {"attributes-missing"},
        train=PAIRS.replace(", ATTRIBUTES", ""),
    ),
    "pairs in Pipe mode, whole": Script(
        HEAD + MANIFEST + 'trainer.train([manifest("train", "source-ref", "label")])\n',
        train=PAIRS.replace("ATTRIBUTES", 'attributes=["source-ref", "label"]'),
    ),
    "pairs by InputData": Script(
        HEAD
        + MANIFEST
        + """
source = S3DataSource(
    s3_data_type="AugmentedManifestFile", s3_uri="s3://images/train.manifest", attribute_names=["source-ref", "label"],
    s3_data_distribution_type="FullyReplicated",
)
trainer.train([InputData(channel_name="train", data_source=source, content_type="application/x-recordio")])
""",
        {"attributes-missing"},
        train=PAIRS.replace(", ATTRIBUTES", ""),
    ),
    "one attribute": Script(
        HEAD + MANIFEST + 'trainer.train([manifest("train", "source-ref")])\n',
        train=PAIRS.replace(", ATTRIBUTES", "").replace('example["source-ref"]', "example"),
    ),
    "a tuning": Script(
        HEAD
        + """
from sagemaker.core.parameter import ContinuousParameter, IntegerParameter
from sagemaker.train.tuner import HyperparameterTuner

trainer = ModelTrainer(
    training_image=image, role=get_execution_role(), environment={"ENTRYPOINT_MODE": "mpi"},
    compute=Compute(instance_type="ml.c5.xlarge", instance_count=2),
    hyperparameters={"sagemaker_program": "train.py"},
)
tuner = HyperparameterTuner(
    model_trainer=trainer, objective_metric_name="loss", objective_type="Minimize",
    metric_definitions=[{"Name": "loss", "Regex": "loss: ([0-9.]+)"}],
    hyperparameter_ranges={"learning-rate": ContinuousParameter(0.001, 0.1), "epochs": IntegerParameter(1, 5)},
    max_jobs=4, max_parallel_jobs=2,
)
rows = InputData(channel_name="training", data_source="s3://bucket/rows")
tuner.tune(inputs=[rows, InputData(channel_name="code", data_source="s3://bucket/src")], wait=False)
""",
    ),
    "a job of sagemaker-core": Script(
        HEAD
        + """
from sagemaker.core.resources import TrainingJob
from sagemaker.core.shapes import AlgorithmSpecification, OutputDataConfig, ResourceConfig

job = TrainingJob.create(
    training_job_name="by-hand", role_arn=get_execution_role(),
    algorithm_specification=AlgorithmSpecification(training_image=image, training_input_mode="File"),
    hyper_parameters={"sagemaker_program": "train.py", "sagemaker_submit_directory": "s3://bucket/src.tar.gz"},
    output_data_config=OutputDataConfig(s3_output_path="s3://bucket/out"),
    resource_config=ResourceConfig(instance_type="ml.c5.xlarge", instance_count=2, volume_size_in_gb=30),
    stopping_condition=StoppingCondition(max_runtime_in_seconds=600), environment={"ENTRYPOINT_MODE": "mpi"},
)
job.wait()
""".replace("ModelTrainer", "X"),
    ),
    "an export with a timed cell": Script(
        "# In[1]:\n!pip install -q 'sagemaker>=3'\n# In[2]:\n"
        + HEAD
        + """
# In[3]:
trainer = ModelTrainer(
    training_image=image, role=get_execution_role(), environment={"ENTRYPOINT_MODE": "mpi"},
    source_code=SourceCode(source_dir="src", command="exec train"),
    compute=Compute(instance_type="ml.c5.xlarge", instance_count=2),
    hyperparameters={"sagemaker_program": "train.py"},
)
# In[4]:
%%time
trainer.train([InputData(channel_name="training", data_source="s3://bucket/rows")])
# In[5]:
trainer._latest_training_job.model_artifacts.s3_model_artifacts
""",
    ),
    "ModelTrainer of SDK v2": Script(
        """
from sagemaker import Session, get_execution_role
from sagemaker.modules.configs import Compute, InputData, SourceCode
from sagemaker.modules.distributed import MPI
from sagemaker.modules.train import ModelTrainer

image = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/my-training:2.14.1-cpu-py311"
trainer = ModelTrainer(
    training_image=image, role="arn:aws:iam::123456789012:role/Training",
    source_code=SourceCode(source_dir="src", entry_script="train.py"),
    compute=Compute(instance_type="ml.c5.xlarge", instance_count=2),
    distributed=MPI(process_count_per_node=1), hyperparameters={"epochs": 1},
)
trainer.train(input_data_config=[InputData(channel_name="training", data_source="s3://bucket/rows")])
""",
        {"not-our-entrypoint"},
        sdk="v2",
    ),
    "ModelTrainer of SDK v2, exec train": Script(
        """
from sagemaker.modules.configs import Compute, InputData, SourceCode
from sagemaker.modules.train import ModelTrainer

image = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/my-training:2.14.1-cpu-py311"
trainer = ModelTrainer(
    training_image=image, role="arn:aws:iam::123456789012:role/Training", environment={"ENTRYPOINT_MODE": "mpi"},
    source_code=SourceCode(source_dir="src", command="exec train"),
    compute=Compute(instance_type="ml.c5.xlarge", instance_count=2), hyperparameters={"sagemaker_program": "train.py"},
)
trainer.train(input_data_config=[InputData(channel_name="training", data_source="s3://bucket/rows")])
""",
        sdk="v2",
    ),
    "pairs of TrainingInput, of SDK v2": Script(
        """
from sagemaker.estimator import Estimator
from sagemaker.inputs import TrainingInput

estimator = Estimator(
    image_uri="123456789012.dkr.ecr.eu-west-1.amazonaws.com/my-training:2.14.1-cpu-py311", instance_count=1,
    role="arn:aws:iam::123456789012:role/Training", instance_type="ml.c5.xlarge", entry_point="train.py",
    source_dir="src", input_mode="Pipe", debugger_hook_config=False, disable_profiler=True,
)
train = TrainingInput(
    "s3://images/train.manifest", s3_data_type="AugmentedManifestFile", attribute_names=["source-ref", "label"],
    record_wrapping="RecordIO", content_type="application/x-recordio", input_mode="Pipe",
)
estimator.fit({"train": train})
""",
        {"attributes-missing"},
        train=PAIRS.replace(", ATTRIBUTES", ""),
        sdk="v2",
    ),
}
