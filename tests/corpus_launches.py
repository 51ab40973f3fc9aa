"""List launch scripts like public ones: (first lines, submitting lines, expected checks, jobs)."""

import re
from dataclasses import dataclass
from pathlib import Path

BOTO3 = "import boto3\nclient = boto3.client('sagemaker', region_name='eu-west-1')\n"
SUBMITS = "client.create_training_job(**request)\n"
CELL = "client.create_training_job(**request)\\n"
OF_BOTO3 = {
    "plain": ("", SUBMITS, set(), 1),
    "waits": (
        "",
        f"{SUBMITS}client.get_waiter('training_job_completed_or_stopped').wait(TrainingJobName='job')\n",
        set(),
        1,
    ),
    "in a function": ("", f"def main():\n    {SUBMITS}\nif __name__ == '__main__':\n    main()\n", set(), 1),
    "twice": ("", SUBMITS * 2, set(), 2),
    "nothing": (
        "",
        "client.create_training_job\nclient.describe_training_job(TrainingJobName='a')\nif 0:\n    " + SUBMITS,
        {"no-request"},
        0,
    ),
    "raises": ("", f"raise KeyError('role')\n{SUBMITS}", {"launch-failed"}, 0),
    "raw lines": ("!pip install -q sagemaker\n%matplotlib inline\n", SUBMITS, set(), 1),
    "a timed cell": ("", f"# In[2]:\n\n%%time\n{SUBMITS}", set(), 1),
    "a timed line": ("", f"%time {SUBMITS}", set(), 1),
    "a cell of bash": ("# In[1]:\n%%bash\nset -e; aws s3 ls |\n  head\n# In[2]:\n", SUBMITS, set(), 1),
    "taken output": ("files = !ls *.py\naccount = %env HOME\n", SUBMITS, set(), 1),
    "exported": ("get_ipython().system('pip list')\nget_ipython().run_line_magic('env', 'A=1')\n", SUBMITS, set(), 1),
    "exported, timed": ("", f"get_ipython().run_cell_magic('time', '', '{CELL}')\n", set(), 1),
    "help and a long line": ("client?\n!aws s3 cp \\\n   a b\n", SUBMITS, set(), 1),
}
DEFAULT = ("plain", "nothing", "raw lines", "exported, timed")  # of these, each kind once; the others are `more`

TF = "from sagemaker.tensorflow import TensorFlow\n"
AS_V2 = "framework_version='2.14', image_uri=IMAGE, instance_count=2, instance_type='ml.c5.xlarge', "
AS_V1 = (
    "framework_version='2.3', py_version='py37', image_name=IMAGE, train_instance_count=2, "
    "train_instance_type='ml.c5.xlarge', "
)
MPI = "{'mpi': {'enabled': True, 'processes_per_host': 1}}"
FIT = ".fit('s3://bucket/rows')\n"
OF_V2 = {
    "v2, mpi": (f"TensorFlow({AS_V2} distribution={MPI}, **common){FIT}", set()),
    "v1's names": (f"TensorFlow({AS_V1} distributions={MPI}, **common){FIT}", set()),
    "v1's names, more of them": (
        f"TensorFlow({AS_V1} distributions={MPI}, train_max_run=3600, train_volume_size=30, **common){FIT}",
        set(),
    ),
    "v1's name of the way alone": (f"TensorFlow({AS_V2} distributions={MPI}, **common){FIT}", set()),
    "v1's spot": (
        f"TensorFlow({AS_V1} distributions={MPI}, train_use_spot_instances=True, train_max_wait=90000, **common){FIT}",
        {"no-checkpoint-config"},
    ),
    "no way": (f"TensorFlow({AS_V2} **common){FIT}", {"nothing-shared"}),
    "another argument": (f"TensorFlow({AS_V2} distribution={MPI}, colour='red', **common){FIT}", {"argument-dropped"}),
    "a timed cell of v2": (f"%%time\nTensorFlow({AS_V2} distribution={MPI}, **common){FIT}", set()),
    "Estimator drops": (
        f"from sagemaker.estimator import Estimator\nEstimator(image_uri=IMAGE, instance_count=2, "
        f"instance_type='ml.c5.xlarge', distribution={MPI}, **common){FIT}",
        {"nothing-shared", "distribution-dropped"},
    ),
    "Estimator drops v1's": (
        f"from sagemaker.estimator import Estimator\nEstimator(image_uri=IMAGE, instance_count=2, "
        f"instance_type='ml.c5.xlarge', distributions={MPI}, **common){FIT}",
        {"nothing-shared", "distribution-dropped"},
    ),
    "JSON twice": (
        f"import json\nTensorFlow({AS_V2} distribution={MPI}, "
        f"hyperparameters={{'optimizer': json.dumps('adam')}}, **common){FIT}",
        {"encoded-twice"},
    ),
}


@dataclass(frozen=True)
class Launch:
    """A launch script, the files beside it, and all warnings and errors that the doctor must report."""

    text: str
    sdk: str
    wanted: set[str]
    requirements: str
    train: str


def with_model_trainers() -> dict[str, Launch]:
    """Return the launch scripts of corpus_v3.txt by name."""
    _, *sections = re.split(r"^(?:=== |### )", Path(__file__).with_name("corpus_v3.txt").read_text(), flags=re.M)
    parts, scripts = dict[str, str](), dict[str, Launch]()
    for head, _, text in (each.partition("\n") for each in sections):
        name, *labels = (each.strip() for each in head.split("|"))
        if not labels:
            parts[name] = text
            continue
        sdk, wanted, requirements, train = labels
        for part, inside in parts.items():
            text = text.replace(f"<{part}>\n", inside)
        scripts[name] = Launch(text, sdk, set(wanted.replace(",", " ").split()), requirements, parts[train])
    return scripts
