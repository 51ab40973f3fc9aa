"""List training scripts in the manner of public ones, of a few lines each, with the right findings.

A script begins with `### NAME | JOB | CHECKS | REQUIREMENTS`: JOB is none, one, mpi, mwms, ps or jax; CHECKS are
those that must be found as errors or warnings; warnings of NOT_LABELLED do not count (docs/doctor.md says how often
they were right on public scripts). Half of the scripts are healthy.
"""

NOT_LABELLED = {
    *("no-checkpoint", "no-resume", "checkpoint-elsewhere", "no-sigterm", "no-model", "all-save", "chief-saves-alone"),
    *(
        "no-shards",
        "uneven-ranks",
        "gpus-idle",
        "model-dir-s3",
        "s3-path",
        "path",
        "hvd-no-pin",
        "job-warning",
        "plan-note",
    ),
}

HEALTHY = """
### keras | one | |
import os, tensorflow as tf
m = tf.keras.Sequential([tf.keras.layers.Dense(1)]); m.compile("sgd", "mse")
m.fit(tf.random.normal([8, 4]), tf.zeros([8, 1])); m.save(os.environ["SM_MODEL_DIR"] + "/1")
### known_args | one | |
import argparse, os
p = argparse.ArgumentParser(); p.add_argument("--epochs", type=int, default=1)
p.add_argument("--train", default=os.environ.get("SM_CHANNEL_TRAIN")); a, _ = p.parse_known_args()
### pandas_required | one | | pandas==2.1.4
import pandas as pd, os
print(pd.read_csv(os.environ["SM_CHANNEL_TRAINING"] + "/a.csv"))
### pillow_required | one | | Pillow>=9
from PIL import Image
print(Image.open("a.png"))
### opencv_headless | one | | opencv-python-headless
import cv2
print(cv2.__version__)
### skimage | one | | scikit-image
from skimage import io
from PIL import Image
### transformers | one | | transformers[tf]==4.35
from transformers import TFAutoModel
from tqdm import tqdm
import tokenizers
### seaborn_brings | one | | seaborn
import seaborn, pandas as pd, matplotlib.pyplot as plt
### try_import | one | |
try:
    import pandas as pd
except ImportError:
    pd = None
### try_missing | one | |
try:
    import wandb
except ModuleNotFoundError:
    wandb = None
### if_import | one | |
import os
if os.environ.get("USE_WANDB"):
    import wandb
### typing_only | one | |
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    import pandas as pd
### installs | one | |
import subprocess, sys
subprocess.check_call([sys.executable, "-m", "pip", "install", "pandas"])
import pandas as pd
### installs_shell | one | |
import os
os.system("pip install opencv-python-headless")
import cv2
### stdlib | one | |
import tarfile, zoneinfo, sqlite3, xml.etree.ElementTree, concurrent.futures, distutils.util
### image_modules | one | |
import yaml, sklearn.metrics, scipy, boto3, requests, h5py, joblib
import six, psutil, absl.flags, google.protobuf, jinja2, mpi4py
### horovod | mpi | |
import tensorflow as tf, horovod.tensorflow.keras as hvd
hvd.init()
o = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(.1 * hvd.size()))
m = tf.keras.Sequential([tf.keras.layers.Dense(1)]); m.compile(o, "mse")
m.fit(x, y, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
### horovod_tape | mpi | |
import tensorflow as tf, horovod.tensorflow as hvd
hvd.init()
with tf.GradientTape() as t:
    l = f(x)
t = hvd.DistributedGradientTape(t); o.apply_gradients(zip(t.gradient(l, v), v))
hvd.broadcast_variables(v, root_rank=0)
### smddp | mpi | |
import tensorflow as tf, smdistributed.dataparallel.tensorflow as sdp
sdp.init()
with tf.GradientTape() as t:
    l = f(x)
t = sdp.DistributedGradientTape(t); o.apply_gradients(zip(t.gradient(l, v), v))
sdp.broadcast_variables(v, root_rank=0)
### mwms | mwms | |
import tensorflow as tf
s = tf.distribute.MultiWorkerMirroredStrategy()
with s.scope():
    m = tf.keras.Sequential([tf.keras.layers.Dense(1)]); m.compile("sgd", "mse")
m.fit(d)
### mirrored | one | |
import tensorflow as tf
s = tf.distribute.MirroredStrategy()
with s.scope():
    m = tf.keras.Sequential([tf.keras.layers.Dense(1)]); m.compile("sgd", "mse")
m.fit(d)
### compat | one | |
import tensorflow.compat.v1 as tf
tf.disable_v2_behavior(); s = tf.Session()
### absl_good | one | |
from absl import app, flags
flags.DEFINE_float("lr", .1, "rate")
app.run(print)
### which_aws | one | |
import shutil, subprocess
if shutil.which("aws"):
    subprocess.run(["aws", "s3", "ls"])
### python_children | one | |
import subprocess, sys
subprocess.check_call([sys.executable, "eval.py"])
subprocess.run(["ls", "-l"]); subprocess.run("nvidia-smi", shell=True)
### awscli_required | one | | awscli
import subprocess
subprocess.check_call(["aws", "s3", "cp", "a", "b"])
### env_default | one | |
import os
print(os.environ.get("SM_CHANNEL_EVAL", "/tmp"), os.getenv("SM_NUM_GPUS", 0))
### git_in_try | one | |
import subprocess
try:
    print(subprocess.check_output(["git", "rev-parse", "HEAD"]))
except Exception:
    print("no revision")
### doc_says_aws | one | |
'''aws s3 cp a b; import pandas'''
print("git clone it")
### tensorflow_required | mpi | | tensorflow>=2.10,<2.15
import horovod.tensorflow as hvd
hvd.init()
### numpy_ceiling | one | | numpy>=1.22,<2
import numpy as np
### tfds_hub | one | | tensorflow-datasets\ntensorflow-hub
import tensorflow_datasets as tfds, tensorflow_hub as hub, tqdm
"""

ILL = """
### pandas | one | module-missing |
import pandas as pd
### pillow | one | module-missing |
from PIL import Image
### opencv | one | module-missing |
import cv2
### matplotlib | one | module-missing |
import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt
### tqdm | one | module-missing | pandas
import pandas, tqdm
### hub | none | module-missing |
import tensorflow_hub as hub
### addons | one | module-missing |
import tensorflow_addons as tfa
### seaborn | mpi | module-missing, hvd-no-init |
import seaborn as sns, horovod.tensorflow as hvd
print(hvd.rank())
### smdebug | one | module-missing |
import smdebug.tensorflow as smd
### modelparallel | mpi | module-missing |
import smdistributed.modelparallel.tensorflow as smp
### torch | one | module-missing |
import torch
### unknown_helper | one | module-missing |
from common_helpers import load
### aws_cli | one | command-missing |
import os
os.system("aws s3 sync s3://b/a /tmp/a")
### git_clone | one | command-missing |
import subprocess
subprocess.check_call(["git", "clone", "https://example.com/a"])
### wget | one | command-missing |
import subprocess
subprocess.run("wget -q https://example.com/a && tar xf a", shell=True, check=True)
### unzip | one | command-missing |
import subprocess
subprocess.Popen(["unzip", "a.zip"]).wait()
### git_requirement | one | command-missing | six\ngit+https://github.com/o/n.git@v1
import six
### git_named | one | command-missing | n @ git+https://github.com/o/n.git
print(1)
### keras_3_required | one | requirement-refused | keras>=3.0
import keras
### gpu_required | one | requirement-refused | tensorflow-gpu==2.4.1
import tensorflow as tf
### session | one | tf1-name |
import tensorflow as tf
s = tf.Session()
### contrib | one | tf-gone |
import tensorflow as tf
x = tf.contrib.layers.flatten(y)
### placeholder | one | tf1-name |
import tensorflow as tf
x = tf.placeholder(tf.float32)
### no_init | mpi | hvd-no-init |
import horovod.tensorflow as hvd
print(hvd.size())
### no_average | mpi | hvd-no-average, hvd-no-broadcast |
import tensorflow as tf, horovod.tensorflow.keras as hvd
hvd.init(); m = tf.keras.Sequential(); m.compile("sgd", "mse"); m.fit(x, y)
### no_average_imported | mpi | hvd-no-average, hvd-no-broadcast |
import tensorflow as tf, horovod.tensorflow as hvd
from horovod.tensorflow import DistributedGradientTape, broadcast_variables
hvd.init(); m = tf.keras.Sequential(); m.compile("sgd", "mse"); m.fit(x, y)
### python2 | one | syntax |
print "epoch", 1
### notebook_train | one | notebook-left |
get_ipython().system('pip install pandas')
### cell_magic | one | syntax |
%matplotlib inline
import os
### type_bool | one | bool-argument |
import argparse
p = argparse.ArgumentParser(); p.add_argument("--fp16", type=bool, default=False); p.parse_known_args()
### no_channel | one | channel-missing |
import os
print(os.environ["SM_CHANNEL_EVAL"])
### exits_with_0 | one | failure-hidden |
import sys
try:
    train()
except Exception:
    sys.exit(0)
### outside_scope | mwms | model-outside-scope |
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
def build():
    m = tf.keras.Sequential([tf.keras.layers.Dense(1)]); m.compile("sgd", "mse"); return m
m = build(); m.fit(x, y)
### metric_outside | mwms | metric-outside-scope |
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    m = tf.keras.Sequential([tf.keras.layers.Dense(1)])
m.compile("sgd", "mse", metrics=[tf.keras.metrics.AUC()]); m.fit(x, y)
### loop_alone | mwms | no-strategy-run |
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    m = tf.keras.Sequential([tf.keras.layers.Dense(1)]); sgd = tf.keras.optimizers.SGD()
for x, y in rows:
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((m(x) - y) ** 2)
    sgd.apply_gradients(zip(tape.gradient(loss, m.trainable_variables), m.trainable_variables))
### jax_local | jax | jax-own-mesh | jax
import jax
from sagemaker_tf_data import initialize_jax
initialize_jax()
mesh = jax.sharding.Mesh(jax.local_devices(), "data"); step = jax.jit(jax.grad(loss))
### jax_alone | jax | jax-nothing-shared | jax
import jax
from sagemaker_tf_data import initialize_jax
initialize_jax()
step = jax.jit(jax.value_and_grad(loss))
### v3_variable | one | variable-missing |
import os
print(os.environ["SM_MASTER_ADDR"])
"""
