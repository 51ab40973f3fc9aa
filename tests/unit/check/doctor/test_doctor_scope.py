"""Test which models are found outside of a strategy's scope, through calls, and which right scripts are left alone."""

from pathlib import Path
from typing import Any

import pytest
from looking import MWMS, PS, found, look, merged

pytestmark = pytest.mark.usefixtures("looks_here")

HEAD = "import os\nimport tensorflow as tf\nstrategy = tf.distribute.MultiWorkerMirroredStrategy()\n"
BUILD = """
def build():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model
"""
FIT = "model.fit(rows)\n"
IN_SCOPE = "with strategy.scope():\n    model = build()\n"
STEP = """
def step(x):
    with tf.GradientTape() as tape:
        loss = net(x)
    sgd.apply_gradients(zip(tape.gradient(loss, net.trainable_variables), net.trainable_variables))
strategy.run(step)
"""
LOOP = STEP.replace("strategy.run(step)\n", "")
OWN = """
class Net(tf.keras.Model):
    def call(self, rows):
        return rows
"""
# Name: the script, in which the wrong line ends with `# here`.
WRONG = {
    "at the top level": "model = tf.keras.Sequential()  # here\n" + FIT,
    "functional": "x = tf.keras.Input((1,))\nmodel = tf.keras.Model(x, tf.keras.layers.Dense(1)(x))  # here\n" + FIT,
    "by a function": BUILD + "model = build()  # here\n" + FIT,
    "by a function of a function": BUILD + "def make():\n    return build()\nmodel = make()  # here\n" + FIT,
    "in main": BUILD + "def main():\n    model = build()  # here\n    "
    + FIT + 'if __name__ == "__main__":\n    main()\n',
    "in main, by absl": BUILD + "from absl import app\ndef main(_):\n    model = build()  # here\n    "
    + FIT + "app.run(main)\n",
    "in main, in a try": BUILD + "def main():\n    model = build()  # here\n    " + FIT
    + "try:\n    main()\nexcept KeyboardInterrupt:\n    pass\n",
    "of an own class": OWN + "model = Net()  # here\n" + FIT,
    "an application": "model = tf.keras.applications.ResNet50(weights=None)  # here\n" + FIT,
    "loaded": 'model = tf.keras.models.load_model("m")  # here\n' + FIT,
    "given to a function": BUILD + "def train(model, rows):\n    " + FIT + "net = build()  # here\ntrain(net, rows)\n",
    "with its optimizer": BUILD.replace("return model", "return model, 1")
    + "model, optimizer = build()  # here\n" + FIT,
    "in a class": BUILD + "class Trainer:\n    def __init__(self):\n        self.model = build()  # here\n"
    "    def train(self):\n        self.model.fit(rows)\nTrainer().train()\n",
    "given to a class": BUILD + "class Trainer:\n    def __init__(self, model):\n        self.model = model\n"
    "    def train(self):\n        self.model.fit(rows)\ntrainer = Trainer(build())  # here\ntrainer.train()\n",
    "only compiled in the scope": "model = tf.keras.Sequential()  # here\nwith strategy.scope():\n"
    '    model.compile("sgd", "mse")\n' + FIT,
    "a loop": "net = tf.keras.Sequential()  # here\n" + STEP,
    "a loop, its variables kept before": "net = tf.keras.Sequential()  # here\n"
    + STEP.replace("net.trainable_variables", "kept").replace("(x):\n", "(x):\n    kept = net.trainable_variables\n"),
    "a loop of Keras 3": "net = tf.keras.Sequential()  # here\n"
    + STEP.replace("apply_gradients(zip(", "apply(").replace("variables))", "variables)"),
    "in other contexts": BUILD + "lock = threading.Lock()\nwith lock, tf.device('/cpu:0'), tf.name_scope('a'):\n"
    "    model = build()  # here\n" + FIT,
    "with known decorators": BUILD.replace("def", "@functools.lru_cache(1)\ndef")
    + "@tf.autograph.experimental.do_not_convert\ndef main():\n    model = build()  # here\n    " + FIT + "main()\n",
    "behind a condition that says nothing of scopes": BUILD + "if os.path.exists('x'):\n    print(1)\nif rows:\n"
    "    model = build()  # here\n    " + FIT,
}  # fmt: skip
RIGHT = {
    "in the scope": "with strategy.scope():\n    model = tf.keras.Sequential()\n" + FIT,
    "by a function in the scope": BUILD + IN_SCOPE + FIT,
    "all in the scope": BUILD + "def main():\n    model = build()\n    " + FIT + "with strategy.scope():\n    main()\n",
    "a function that enters the scope": "def build():\n    with strategy.scope():\n"
    "        model = tf.keras.Sequential()\n    return model\nmodel = build()\n" + FIT,
    "deeper": "def make():\n    with strategy.scope():\n        return tf.keras.Sequential()\n"
    "def build():\n    return make()\n"
    "model = build()\n" + FIT,
    "loaded in the scope": 'with strategy.scope():\n    model = tf.keras.models.load_model("m")\n' + FIT,
    "on one host without": BUILD + "if one:\n    model = build()\nelse:\n"
    "    with strategy.scope():\n        model = build()\n"
    + FIT,
    "an early return": BUILD + "def main():\n    if one:\n        model = build()\n        " + FIT + "        return\n"
    "    with strategy.scope():\n        model = build()\n    " + FIT + "main()\n",
    "a scope that may be none": "import contextlib\n"
    "scope = strategy.scope() if many else contextlib.nullcontext()\nwith scope:\n"
    "    model = tf.keras.Sequential()\n" + FIT,
    "an ExitStack": "import contextlib\nwith contextlib.ExitStack() as stack:\n"
    "    stack.enter_context(strategy.scope())\n"
    "    model = tf.keras.Sequential()\n" + FIT,
    "set for all": "tf.distribute.experimental_set_strategy(strategy)\nmodel = tf.keras.Sequential()\n" + FIT,
    "a copy for the export": BUILD + IN_SCOPE + FIT + "plain = build()\n"
    "plain.set_weights(model.get_weights())\nplain.save('m')\n",
    "cloned into the scope": BUILD + "base = build()\nwith strategy.scope():\n"
    "    model = tf.keras.models.clone_model(base)\n"
    + FIT,
    "a tuner calls it": BUILD + "tuner = Tuner(build, distribution_strategy=strategy)\ntuner.search(rows)\n",
    "a scaler": "from sklearn.preprocessing import StandardScaler\nscaler = StandardScaler()\nscaler.fit(rows)\n",
    "in a class, in the scope": BUILD + "class Trainer:\n    def __init__(self):\n        with strategy.scope():\n"
    "            self.model = build()\n    def train(self):\n        self.model.fit(rows)\nTrainer().train()\n",
    "optimizer outside": BUILD + "sgd = tf.keras.optimizers.SGD()\n" + IN_SCOPE + FIT,
    "compiled outside": "with strategy.scope():\n    model = tf.keras.Sequential()\n"
    "model.compile('sgd', 'mse')\n" + FIT,
    "steps in the strategy": "with strategy.scope():\n    net = tf.keras.Sequential()\n" + STEP,
    "a probe is counted": BUILD + IN_SCOPE + FIT + "probe = build()\nprint(len(probe.trainable_variables))\n",
    "only a probe is counted": "probe = tf.keras.Sequential()\n"
    "print(sum(v.shape.num_elements() for v in probe.trainable_weights))\n",
    "a teacher is read": "teacher = tf.keras.applications.ResNet50()\nfor v in teacher.trainable_weights:\n"
    "    v.assign(v)\n" + BUILD + IN_SCOPE + FIT,
    "a rate is found before": BUILD + "tmp = build()\ntmp.fit(rows)\n" + IN_SCOPE + FIT,
    "trained before, by a function": BUILD + "def make():\n    with strategy.scope():\n        return build()\n"
    "tmp = build()\ntmp.fit(rows)\nmodel = make()\n" + FIT,
    "the scope of the Model Garden": BUILD + "from official.common import distribute_utils\n"
    "with distribute_utils.get_strategy_scope(strategy):\n    model = build()\n" + FIT,
    "a scope that is given": BUILD + "def make(scope):\n    with scope:\n        return build()\n"
    "model = make(strategy.scope())\n" + FIT,
    "all in a scope that is given": BUILD + "def main(scope):\n    with scope:\n        model = build()\n        "
    + FIT + "main(strategy.scope())\n",
    "a scope of an object": BUILD + "class Trainer:\n    def __init__(self, scope):\n        self.scope = scope\n"
    "    def train(self):\n        with self.scope:\n            self.model = build()\n        self.model.fit(rows)\n"
    "Trainer(strategy.scope()).train()\n",
    "a scope of another object": BUILD + "with context.scope:\n    model = build()\n" + FIT,
    "a decorator": BUILD.replace("def build", "@scoped\ndef build") + "def scoped(inner):\n    def run():\n"
    "        with strategy.scope():\n            return inner()\n    return run\nmodel = build()\n" + FIT,
    "a decorator of main": BUILD + "from helpers import scoped\n@scoped(strategy)\ndef main():\n"
    "    model = build()\n    "
    + FIT + "main()\n",
    "entered by hand": BUILD + "scope = strategy.scope()\nscope.__enter__()\nmodel = build()\n" + FIT,
    "entered by hand, at once": BUILD + "strategy.scope().__enter__()\nmodel = build()\n" + FIT,
    "an ExitStack, kept": BUILD + "import contextlib\nstack = contextlib.ExitStack()\n"
    "entered = stack.enter_context(strategy.scope())\nmodel = build()\n" + FIT,
    "an ExitStack, of a name": BUILD + "import contextlib\nscope = strategy.scope()\nstack = contextlib.ExitStack()\n"
    "stack.enter_context(scope)\nmodel = build()\n" + FIT,
    **{
        f"steps by {call}": LOOP + line
        for call, line in {
            "a tuner": "tuner.search(rows)\n",
            "train_on_batch": "model.train_on_batch(x, y)\n",
            "the extended strategy": "strategy.extended.call_for_each_replica(step, (x,))\n",
            "an old name": "strategy.experimental_run_v2(step, (x,))\n",
            "make_train_function": "run = model.make_train_function()\n",
        }.items()
    },
    "a function with another's name": BUILD + IN_SCOPE + "model.build((None, 1))\n" + FIT,
}  # fmt: skip
CHECKS = ("model-outside-scope", "metric-outside-scope", "no-strategy-run")


@pytest.mark.parametrize("change", [MWMS, None], ids=["two workers", "no job"])
@pytest.mark.parametrize("script", WRONG.values(), ids=WRONG)
def test_a_model_that_is_made_outside_is_found_by_its_line(
    script: str, change: dict[str, Any] | None, tmp_path: Path
) -> None:
    report = look(tmp_path, HEAD + script, change)
    wrong = [at for at, line in enumerate((HEAD + script).splitlines(), 1) if line.endswith("# here")]
    told = [each for each in report.findings if each.check in CHECKS]
    assert [(each.check, each.place.line) for each in told if each.place] == [("model-outside-scope", wrong[0])]
    assert "with strategy.scope(): " in str(told[0])


@pytest.mark.parametrize("script", RIGHT.values(), ids=RIGHT)
def test_right_scripts_are_left_alone(script: str, tmp_path: Path) -> None:
    report = look(tmp_path, HEAD + script, MWMS)
    assert [str(each) for each in report.findings if each.check in CHECKS] == []


def test_one_host_needs_no_scope(tmp_path: Path) -> None:
    one = merged(MWMS, {"ResourceConfig": {"InstanceCount": 1}})
    assert not found(look(tmp_path, HEAD + WRONG["in main"], one), "model-outside-scope")


def test_a_model_of_a_coordinator_is_in_the_scope_of_its_servers(tmp_path: Path) -> None:
    head = HEAD.replace("MultiWorkerMirroredStrategy()", "ParameterServerStrategy(resolver)")
    assert found(look(tmp_path, head + WRONG["by a function"], PS), "model-outside-scope")


@pytest.mark.parametrize("case, wrong", [("outside", True), ("", False)])
def test_the_jobs_environment_decides_which_branch_is_taken(case: str, wrong: bool, tmp_path: Path) -> None:
    script = (
        f'{HEAD}{BUILD}if os.environ.get("CASE") == "outside":\n    model = build()\nelse:\n'
        f"    with strategy.scope():\n        model = build()\n{FIT}"
    )
    report = look(tmp_path, script, merged(MWMS, {"Environment": {"CASE": case}}))
    assert bool(found(report, "model-outside-scope")) is wrong


OWN_CLUSTERS = {
    "TF_CONFIG": 'os.environ["TF_CONFIG"] = json.dumps({})\n',
    "a default": 'os.environ.setdefault("TF_CONFIG", json.dumps({}))\n',
    "with others": 'os.environ.update({"TF_CONFIG": json.dumps({}), "A": "b"})\n',
    "by name": "os.environ.update(TF_CONFIG=json.dumps({}))\n",
    "JAX": "import jax\njax.distributed.initialize(address, 2, rank)\n",
    "mpirun": 'import subprocess\nsubprocess.run(["mpirun", "-H", hosts, "python", "x.py"])\n',
    "a cluster of TensorFlow 1": 'cluster = tf.train.ClusterSpec({"ps": [], "worker": []})\n',
}


@pytest.mark.parametrize("lines", OWN_CLUSTERS.values(), ids=OWN_CLUSTERS)
def test_a_script_that_joins_the_hosts_itself_needs_no_mode(lines: str, tmp_path: Path) -> None:
    two = {"ResourceConfig": {"InstanceCount": 2}}
    script = f"import json\nimport os\nimport tensorflow as tf\nhosts = json.loads(os.environ['SM_HOSTS'])\n{lines}"
    report = look(tmp_path, script, two)
    assert [each.check for each in report.findings if each.check in ("nothing-shared", "tf-config-written")] == []
    reads = script.replace(lines, 'print(os.environ.get("TF_CONFIG"))\n')
    assert found(look(tmp_path, reads, two), "nothing-shared")
