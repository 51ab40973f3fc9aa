"""List what our images have, what AWS's have and ours lack, and which packages bring which modules.

Ours are those of image_lines.json. AWS's come from the public repository aws/deep-learning-containers: stage
`sagemaker` of tensorflow/training/docker/2.14/py3/Dockerfile.cpu (commit 67c7ae4946, February 2024; those of 2.16, 2.18
and 2.19 install the same packages), and docker/tensorflow/2.21/Dockerfile.cpu with cpu/pyproject.toml and cpu/uv.lock
(August 2026). docs/differences.md shows the part that users meet.
"""

import json
from pathlib import Path

_LINES = {  # line of our images -> its packages
    (int(line.partition(".")[0]), int(line.partition(".")[2])): " ".join(versions)
    for line, versions in json.loads(
        (Path(__file__).parents[2] / "programs/prepare/image_lines.json").read_text()
    ).items()
    if not line.endswith("-gpu")
}
# Modules of the image that come from none of the pins.
_OWN = {"entrypoint", "sagemaker_tf_data", "smdistributed", "tensorflow_core"}

# Packages whose modules have other names.
_NAMED = {
    "absl-py": "absl",
    "attrs": "attr attrs",
    "beautifulsoup4": "bs4",
    "cython": "Cython cython",
    "dm-tree": "tree",
    "faiss-cpu": "faiss",
    "gin-config": "gin",
    "gitpython": "git",
    "google-auth": "google",
    "google-pasta": "pasta",
    "grpcio": "grpc",
    "imbalanced-learn": "imblearn",
    "ipython": "IPython",
    "libclang": "clang",
    "nvidia-ml-py": "pynvml",
    "opencv-contrib-python": "cv2",
    "opencv-python": "cv2",
    "opencv-python-headless": "cv2",
    "pillow": "PIL",
    "protobuf": "google",
    "py-spy": "",
    "pyjwt": "jwt",
    "pynacl": "nacl",
    "python-dateutil": "dateutil",
    "python-dotenv": "dotenv",
    "pyyaml": "yaml",
    "sagemaker-experiments": "smexperiments",
    "scikit-image": "skimage",
    "scikit-learn": "sklearn",
    "setuptools": "setuptools pkg_resources distutils",
    "tensorflow-cpu": "tensorflow",
    "tensorflow-gpu": "tensorflow",
    "tf-models-official": "official",
    "zope-event": "zope",
    "zope-interface": "zope",
}
# Packages that scripts import and our image lacks: those that bring only their own modules, and those of whose
# dependencies scripts import modules, too.
_ALONE = """
attrs beautifulsoup4 comet-ml dm-tree einops faiss-cpu gin-config gitpython gym imbalanced-learn keras-preprocessing
lightgbm omegaconf opencv-contrib-python opencv-python opencv-python-headless pillow plotly pyarrow pydantic pydub
pytest python-dotenv pytz regex sagemaker-experiments sentencepiece smart-open tf-slim tqdm ujson xgboost
"""
_BRING = {
    **dict.fromkeys(_ALONE.split(), ""),
    "albumentations": "cv2 skimage",
    "bokeh": "pandas PIL contourpy tornado",
    "datasets": "pandas pyarrow tqdm fsspec huggingface_hub aiohttp dill",
    "gensim": "smart_open",
    "huggingface-hub": "tqdm filelock fsspec",
    "hydra-core": "omegaconf",
    "imageio": "PIL",
    "imgaug": "cv2 skimage matplotlib PIL imageio shapely",
    "ipython": "matplotlib_inline",
    "kaggle": "tqdm",
    "keras-tuner": "kerastuner",
    "matplotlib": "PIL cycler kiwisolver pyparsing contourpy",
    "mlflow": "pandas matplotlib pyarrow sqlalchemy git PIL",
    "neptune": "pandas git PIL",
    "nltk": "tqdm regex",
    "numba": "llvmlite",
    "optuna": "tqdm sqlalchemy alembic",
    "pandas": "pytz tzdata",
    "pycocotools": "matplotlib PIL",
    "s3fs": "fsspec aiobotocore aiohttp",
    "sagemaker": "pandas tqdm attr attrs jsonschema docker",
    "scikit-image": "PIL imageio networkx tifffile",
    "seaborn": "pandas matplotlib PIL pytz cycler",
    "shap": "pandas tqdm numba",
    "smclarify": "pandas",
    "spacy": "tqdm pydantic typer",
    "statsmodels": "pandas patsy",
    "tensorflow-addons": "typeguard",
    "tensorflow-datasets": "tqdm dill toml tree promise tensorflow_metadata etils",
    "tensorflow-hub": "tf_keras",
    "tensorflow-model-optimization": "tree",
    "tensorflow-probability": "tree decorator",
    "tensorflow-text": "tensorflow_hub",
    "tf-models-official": "pandas matplotlib cv2 PIL gin kaggle pycocotools sentencepiece seqeval tensorflow_hub "
    "tf_slim tensorflow_datasets tensorflow_text tensorflow_model_optimization tqdm tree",
    "tokenizers": "huggingface_hub",
    "torch": "sympy networkx fsspec filelock",
    "torchvision": "torch PIL",
    "transformers": "tokenizers huggingface_hub tqdm regex filelock safetensors fsspec",
    "typer": "shellingham",
    "wandb": "git pydantic platformdirs",
}
# What to do instead of installing a package of which no version works with the Keras of a line (UNSTATED in pins.py).
_INSTEAD = {
    (2, 14): {"keras-hub": "keras-nlp<0.13, or the image of ./build.sh --tensorflow 2.21"},
    (2, 21): dict.fromkeys(("tensorflow-addons", "tf-models-official"), "the image of ./build.sh --tensorflow 2.14"),
}
# Packages that AWS's images have and ours may lack: those that they ask for, and what these bring.
_AWS_BOTH = """
attrs awscli beautifulsoup4 bokeh imageio ipython matplotlib numba opencv-python pandas pillow plotly pybind11 pytz
sagemaker sagemaker-experiments seaborn shap smclarify tensorflow-datasets tqdm
"""
_AWS = {
    (2, 14): "cmake tensorflow-hub tensorflow-text tensorflow-model-optimization tf-models-official",
    (2, 21): "einops gitpython mlflow omegaconf pyarrow pydantic pytest python-dotenv s3fs torch",
}


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Commands that AWS's images have, and ours lack. Some of their images lack some.
AWS_COMMANDS = _words("git aws curl wget unzip gcc make cmake vim emacs ffmpeg protoc xz kinit jq")
AWS_COMMANDS_ON_GPUS = _words("nvcc")  # in their images for GPUs alone
# Commands that scripts call, and neither our images nor AWS's have.
_NOWHERE = _words("sudo zip rsync conda docker gsutil gcloud node npm java htop")
COMMANDS_LACKING = AWS_COMMANDS | AWS_COMMANDS_ON_GPUS | _NOWHERE
# Packages of Python that bring commands: `pip install awscli`.
COMMANDS_OF = {"awscli": "aws", "cmake": "cmake", "gsutil": "gsutil", "kaggle": "kaggle", "ninja": "ninja"}


def _of_line(table: dict[tuple[int, int], str], line: tuple[int, int]) -> list[str]:
    """Return the words of a line of the image; of the nearest line if the table does not have that one."""
    return table[max((each for each in table if each <= line), default=min(table))].split()


def distributions(line: tuple[int, int]) -> frozenset[str]:
    """Return the packages of our image of a line."""
    return frozenset(_of_line(_LINES, line))


def own_modules(distribution: str) -> frozenset[str]:
    """Return a package's own modules. The package's name is as pip normalizes it."""
    return _words(_NAMED.get(distribution, distribution.replace("-", "_")))


def modules_of(distribution: str) -> frozenset[str]:
    """Return the modules that a package and its dependencies bring."""
    return own_modules(distribution) | _words(_BRING.get(distribution, ""))


def is_known(distribution: str) -> bool:
    """Return whether the modules that scripts import of a package are in these tables."""
    return distribution in _BRING or any(distribution in distributions(line) for line in _LINES)


def ours(line: tuple[int, int]) -> frozenset[str]:
    """Return the modules that our image of a line has, without Python's own."""
    return frozenset(_OWN).union(*map(own_modules, distributions(line)))


def remedy(distribution: str, line: tuple[int, int]) -> str:
    """Return what to do where a module of a package is missing from the image of a line."""
    return _INSTEAD.get(line, {}).get(distribution, f"{distribution} in requirements.txt beside the script")


def on_aws(line: tuple[int, int]) -> frozenset[str]:
    """Return the modules that AWS's image of a line has and ours may lack."""
    return frozenset().union(*map(modules_of, [*_AWS_BOTH.split(), *_of_line(_AWS, line)]))


def package_of(module: str) -> str:
    """Return the package that brings a module; "" if it is unknown."""
    found = [each for each in _BRING if module in own_modules(each)]
    return next((each for each in found if "contrib" not in each), "")
