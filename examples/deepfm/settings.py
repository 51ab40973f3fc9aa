"""Read and check the hyperparameters of a job. Nothing here needs TensorFlow.

Sizes decide which weights there are. A checkpoint and a saved model carry theirs along, so who begins from one need not
give them again, and is told where those that are given are others.
"""

import argparse
import json
import math
import os
from dataclasses import asdict, dataclass, fields

TASKS = ("train", "eval", "infer", "export")
# The learning rate of each, if none is given. Adagrad slows down rows of the table that come often and leaves the rest
# as fast as they were, and touches only the rows that a batch has looked up. Adam moves its averages in all of them.
RATES = {"adagrad": 0.1, "adam": 0.001, "momentum": 0.05, "sgd": 0.5, "ftrl": 0.1}


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The sizes that determine a model's weights. The defaults fit Criteo's clicks."""

    field_size: int = 39  # of a row: in Criteo's, 13 counts with one id to each, then 26 categories with many
    feature_size: int = 117_600  # every id is smaller than this
    embedding_size: int = 8  # numbers in the vector of a feature
    deep_layers: tuple[int, ...] = (64, 32)  # widths, first to last
    batch_norm: bool = False

    def to_json(self):
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text):
        found = json.loads(text)
        return cls(**{**found, "deep_layers": tuple(found["deep_layers"])})

    def differences(self, wanted):
        """Return the differences for an error text, "" if none. `wanted`: {name of a size: value}."""
        others = {name: value for name, value in wanted.items() if getattr(self, name) != value}
        return "; ".join(
            f"found {hyphened(name)} {shown(getattr(self, name))}, wanted {shown(value)}"
            for name, value in others.items()
        )


def parse_args(argv=None):
    """Return the hyperparameters, with defaults for those that are not given.

    `sizes` are those of a model that is made anew, `sizes_given` those that the job names: {name: value}. `unknown` are
    the names that nobody here knows. Exits with 2, and one line that says what was found and wanted.
    """
    parser = argparse.ArgumentParser(allow_abbrev=False, usage="train.py [--NAME VALUE ...], all of them optional")

    def add(name, read, help, default=None, also=(), **more):  # SageMaker's users write either
        spellings = dict.fromkeys(each for n in (name, *also) for each in (f"--{n}", f"--{n.replace('-', '_')}"))
        parser.add_argument(*spellings, type=read, default=default, help=help, **more)

    add("task", str, "what to do: %(choices)s", "train", also=["task-type"], choices=TASKS)
    for size in fields(Sizes):
        read = {int: whole, tuple[int, ...]: widths, bool: switch}[size.type]
        add(hyphened(size.name), read, f"default: {shown(size.default)}", **ALONE if read is switch else {})
    add("dropout", shares, "share that is DROPPED behind each deep layer, or one for each of them", (0.5,))
    add("batch-norm-decay", share, "of the old in the moving averages of batch normalization", 0.9)
    add("l2-reg", not_negative, "L2 penalty on what a batch looks up in the table", 1e-3, also=["l2"])
    add("optimizer", str, "%(choices)s", "adagrad", choices=list(RATES))
    add("learning-rate", positive, f"default: {RATES}, by optimizer")
    add("epochs", whole, "more than 6 learn few rows by heart", 4, also=["num-epochs"])
    add("batch-size", whole, "rows per step and process", 64)
    add("steps-per-epoch", whole, "of parameter servers, all workers together; default: the rows, once")
    add("steps-per-call", whole, "of parameter servers: that a worker does before it asks for more", 25)
    add("checkpoints", str, "their folder; default: where SageMaker keeps them, /opt/ml/checkpoints")
    args, rest = parser.parse_known_args(argv)

    args.sizes_given = {
        size.name: getattr(args, size.name) for size in fields(Sizes) if getattr(args, size.name) is not None
    }
    args.sizes = Sizes(**args.sizes_given)
    layers = args.sizes.deep_layers
    if args.task == "train" and len(args.dropout) not in (1, len(layers)):
        parser.error(
            f"dropout: found {len(args.dropout)} shares ({shown(args.dropout)}); wanted one, or one for each of the "
            f"{len(layers)} deep-layers ({shown(layers)})"
        )
    args.learning_rate = args.learning_rate or RATES[args.optimizer]
    # Not arguments: SageMaker's SDK sends a `--model_dir` of its own, which is an address in S3.
    args.model_dir = os.environ.get("SM_MODEL_DIR", "/opt/ml/model")
    args.output_dir = os.environ.get("SM_OUTPUT_DATA_DIR", "/opt/ml/output/data")
    args.unknown = [word for word in rest if word.startswith("--") and word.partition("=")[0] != "--model_dir"]
    return args


# ---- kinds of values -----------------------------------------------------------------------------------------------


def kind(read, fits, wanted):
    """Return a function that reads a value from text and refuses a wrong one; NaN is always wrong."""

    def of(text):
        try:
            value = read(text)
        except (KeyError, ValueError):
            value = math.nan
        if not fits(value):
            raise argparse.ArgumentTypeError(f"found {text!r}; wanted {wanted}")
        return value

    return of


def several(one):
    """Return a reader of lists: `64,32`, `64 32`, or `[64, 32]`, as SageMaker's SDK sends a Python list."""

    def words(text):
        return text.strip().removeprefix("[").removesuffix("]").replace(",", " ").split()

    return kind(lambda text: tuple(map(one, words(text))), len, "one or more, as in 64,32")


whole = kind(int, lambda value: value > 0, "a whole number of 1 or more")
share = kind(float, lambda value: 0 <= value < 1, "a share of 0 or more, and less than 1")
positive = kind(float, lambda value: 0 < value < math.inf, "a number above 0")
not_negative = kind(float, lambda value: 0 <= value < math.inf, "a number of 0 or more")
widths, shares = several(whole), several(share)
SWITCHES = dict.fromkeys(("true", "1", "yes", "on"), True) | dict.fromkeys(("false", "0", "no", "off"), False)
switch = kind(lambda text: SWITCHES[text.lower()], lambda value: value in (True, False), "true or false")
ALONE = {"nargs": "?", "const": True}  # by hand a switch may stand alone; as a hyperparameter it comes with a value


def hyphened(name):
    return name.replace("_", "-")


def shown(value):
    if isinstance(value, tuple):
        return ",".join(f"{each:g}" for each in value)
    return str(value).lower()
