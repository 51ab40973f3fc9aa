"""Test config files from nearly right to garbage: each case soon gives a plan, or an error of one line.

The files lie in a real folder. Each mode and each mistake has its own cases, so that chance leaves none out. Hypothesis
shrinks a failing case to the smallest job that still fails.
"""

import contextlib
import json
from pathlib import Path

import pytest
from builders import write_config
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from plan_checks import check_plan

from entrypoint.base.errors import ConfigError
from entrypoint.launcher.job.config import read_job, read_what_can_be, this_host
from entrypoint.launcher.job.job import Job
from entrypoint.launcher.job.settings import Settings
from entrypoint.launcher.plan.plan import Plan
from entrypoint.launcher.plan.planner import plan_for
from entrypoint.launcher.plan.render import as_json, render

CASES = {1: {"right": 25, "wrong": 4}, 32: {"right": 450, "wrong": 130}}  # with 32, some 5,000 in all
SECRET = "s3cr3t-Zq7Lw0Xk"  # stands for the user's; whatever comes out, it must not be in it

# --- what may stand in the files ---

good_names = (
    st.sampled_from([*range(2, 12), 1]).map(lambda n: [f"algo-{i + 1}" for i in range(n)]).flatmap(st.permutations)
)
odd_names = st.sampled_from(
    ["", " ", "a b", "-oProxyCommand=id", "*", "algo-1\n", "x" * 300, "ümläut", "😀", "\ud800", "a\0b", "..", "a,b",
     "a;id", "$(id)", "127.0.0.1", "algo_1", "ALGO-1", "h.example.com", "%h", "a:1", "[", "lo"]
)  # fmt: skip
odd_texts = (
    st.text(max_size=20)
    | st.sampled_from(["true", "NaN", "1e999", "-0", "None", "null", "{", "[" * 50_000, "\0", "\ud83d", "\u202e"])
    | st.text(alphabet="'\"\\$`(){};&| \t\n=-", max_size=12)
)
numbers = st.integers(-3, 20) | st.sampled_from([2**31, -(2**63), 10**30, 10**400, 65535, 65536, 512, 513, 7922, 7979])
anything = st.recursive(
    st.none() | st.booleans() | numbers | st.floats() | odd_texts | odd_names,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(odd_texts | st.just("hosts"), inner, max_size=4),
    max_leaves=8,
)


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


garbage = st.one_of(
    st.none(),  # no file
    st.binary(max_size=40).map(lambda content: content.decode("latin-1")),
    st.sampled_from(["", " \n", "{", "nul", "\ufeff{}", "{\0}", '{"a": 1}{}', "NaN", "'a'"]),
    st.sampled_from([50, 99, 101, 900, 990, 5000, 200_000]).map(nested),
    st.sampled_from([80, 900, 990]).map(lambda depth: f'{{"a": {nested(depth)}}}'),
    anything.map(json.dumps),
)

# Hyperparameters as the SDK sends them (JSON text), and as people write them.
PS, MWMS, MPI = (f"sagemaker_{name}_enabled" for name in ("parameter_server", "multi_worker_mirrored_strategy", "mpi"))
yes = st.sampled_from(["true", '"true"', "True", "1", True])
no = st.sampled_from(["false", "False", False, None, "null"])
counts = st.integers(1, 6).map(str) | st.integers(1, 6)
evaluators = st.sampled_from(["first", "last", "algo-1"])
programs = st.sampled_from(["script", "server"])
mpi_words = st.sampled_from(
    ["-np 3", "-np 100", "-x A=b", "-x A", "--mca btl tcp", "--NCCL_DEBUG=INFO", "-H algo-1:1", "'a b'",
     "--bind-to core"]
)  # fmt: skip
MODES = {  # what asks for the mode, and what else may be asked for with it
    "single": ({}, {PS: no, MPI: no, "sagemaker_entrypoint_mode": st.just("single")}),
    "ps": (
        {PS: yes},
        {
            "sagemaker_entrypoint_ps_workers": programs,
            "sagemaker_entrypoint_ps_servers": programs,
            "sagemaker_entrypoint_ps_count": st.integers(1, 40).map(str),
            "sagemaker_entrypoint_ps_chief_name": st.sampled_from(["chief", "master"]),
            "sagemaker_entrypoint_processes_per_host": counts,
            "sagemaker_entrypoint_evaluator": evaluators,
        },
    ),
    "mwms": (
        {MWMS: yes},
        {PS: no, "sagemaker_entrypoint_processes_per_host": counts, "sagemaker_entrypoint_evaluator": evaluators},
    ),
    "mpi": (
        {MPI: yes},
        {
            "sagemaker_mpi_num_of_processes_per_host": counts,
            "sagemaker_mpi_custom_mpi_options": st.lists(mpi_words, max_size=4).map(" ".join),
        },
    ),
    "jax": ({"sagemaker_entrypoint_mode": st.just("jax")}, {"sagemaker_entrypoint_processes_per_host": counts}),
}
users = st.fixed_dictionaries(
    {},
    optional={
        "api_key": st.just(json.dumps(SECRET)),
        "nested": st.just(json.dumps({"password": SECRET, "lr": 0.1})),
        "learning_rate": st.floats().map(json.dumps),
        "note": st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20).map(json.dumps),
        "empty": st.sampled_from(["", '""']),
        "-leading": st.just("--dashes"),
        "sagemaker_region": st.just('"eu-west-1"'),
        "sagemaker_entrypoint_control_port": st.integers(10_000, 20_000).map(str),
    },
)
channels = st.dictionaries(
    st.sampled_from(["training", "training-1", "training-2", "x_0", "x_1", "a.b", "9"]),
    st.none()
    | st.fixed_dictionaries(
        {},
        optional={
            "TrainingInputMode": st.sampled_from(["File", "Pipe", None]),
            "S3DistributionType": st.sampled_from(["FullyReplicated", "ShardedByS3Key"]),
            "RecordWrapperType": st.sampled_from(["None", "RecordIO"]),
        },
    ),
)


types = st.sampled_from([["ml.c5.large"] * 3, ["ml.p3.8xlarge"] * 3, ["ml.c5.large", "ml.m5.large", "ml.p3.8xlarge"]])


@st.composite
def groups_of(draw, hosts: list[str]) -> list[dict]:
    """Return the hosts in one to three instance groups, in random order, sometimes of different types."""
    of, kinds = [draw(st.integers(0, 2)) for _ in hosts], draw(types)
    return [
        {"instance_group_name": f"g{n}", "instance_type": kinds[n], "hosts": members}
        for n in draw(st.permutations(range(3)))
        if (members := [host for host, group in zip(hosts, of, strict=True) if group == n])
    ]


@st.composite
def right_ones(draw, modes: list[str]) -> dict:
    """Return a correct description of a job of one of these modes: the files' contents, and the environment."""
    hosts, mode = draw(good_names), draw(st.sampled_from(modes))
    asked, more = MODES[mode]
    environment = {}
    if draw(st.sampled_from([False, False, False, True])):  # simulated hosts
        environment["ENTRYPOINT_HOST_ADDRESSES"] = json.dumps({f"algo-{i}": f"127.9.0.{i}" for i in range(1, 14)})
        environment["ENTRYPOINT_PORT_STRIDE"] = "100"
    if draw(st.booleans()):
        environment["ENTRYPOINT_TOKEN"] = SECRET
    if first := draw(st.sampled_from(["", "auto", "always", "never"])):
        environment["ENTRYPOINT_PS_CHIEF_FIRST"] = first
    resources = {"current_host": draw(st.sampled_from(hosts)), "hosts": hosts, "network_interface_name": "eth0"}
    if draw(st.sampled_from([False, False, True])):
        resources["instance_groups"] = draw(groups_of(hosts))
        some = st.lists(st.sampled_from([group["instance_group_name"] for group in resources["instance_groups"]]),
                        min_size=1, unique=True)  # fmt: skip
        encoded = some.map(json.dumps) | some.map(repr) | some.map(",".join)
        more = {**more, "sagemaker_distribution_instance_groups": encoded}
        more |= {"sagemaker_entrypoint_ps_groups": encoded} if mode == "ps" else {}
    program = draw(st.sampled_from(['"train.py"', "train.py", "train.sh", "train", '"a b.py"', "😀.py"]))
    given = draw(st.fixed_dictionaries(asked, optional=more))
    return {
        "resourceconfig": resources,
        "hyperparameters": {"sagemaker_program": program, **draw(users), **given},
        "inputdataconfig": draw(channels),
        "environment": environment,
        "gpus": draw(st.sampled_from([0, 0, 1, 8])),
    }


settings_names = st.sampled_from([f"ENTRYPOINT_{name.upper()}" for name in Settings.fields])
settings_texts = st.sampled_from(
    ["", "None", "0", "1", "2", "5", "512", "1e3", "nan", "inf", "-1", "x", "true", "auto", "ps", "mpi", "mwms",
     "60000", "5000", "{}", "[]", '{"algo-1": "127.8.0.1"}', '{"algo-1": ""}', '{"algo-1": "a b"}', '{"algo-1": [1]}',
     '{"a": {"b": 1}}', "[" * 100_000, "9" * 5000, "\udcff", "ü", "a\nb", "75,76", "2222", "2223", "7922", "8890",
     "same", "off", "training=same,x=off"]
)  # fmt: skip
known = st.sampled_from(
    [PS, MWMS, MPI, "sagemaker_program", "sagemaker_mpi_num_of_processes_per_host", "sagemaker_mpi_custom_mpi_options",
     "sagemaker_submit_directory", "sagemaker_entrypoint_mode", "sagemaker_entrypoint_restart_codes",
     "sagemaker_entrypoint_processes_per_host", "sagemaker_entrypoint_ps_count", "sagemaker_entrypoint_procceses",
     "sagemaker_distribution_instance_groups", "sagemaker_entrypoint_ps_groups"]
)  # fmt: skip
odd_options = st.sampled_from(
    ["-np ²", "-np", "-x", "-mca", "--", "-", "x", "'", "\\", "-np 0", "a\0b", "-np 9" + "9" * 20]
)
MISTAKES = {
    "garbage for resources": lambda case, draw: case.update(resourceconfig=draw(garbage)),
    "garbage for hyperparameters": lambda case, draw: case.update(hyperparameters=draw(garbage)),
    "garbage for channels": lambda case, draw: case.update(inputdataconfig=draw(garbage)),
    "an odd hyperparameter": lambda case, draw: case["hyperparameters"].update({draw(odd_texts): draw(anything)}),
    "an odd value": lambda case, draw: case["hyperparameters"].update({draw(known): draw(anything)}),
    "odd mpirun options": lambda case, draw: case["hyperparameters"].update(
        {MPI: True, "sagemaker_mpi_custom_mpi_options": draw(odd_options)}
    ),
    "two modes": lambda case, draw: case["hyperparameters"].update({PS: "true", MPI: "true"}),
    "no program": lambda case, draw: case["hyperparameters"].pop("sagemaker_program"),
    "an odd channel": lambda case, draw: case["inputdataconfig"].update({draw(odd_texts): draw(anything)}),
    "a setting": lambda case, draw: case["environment"].update({draw(settings_names): draw(settings_texts)}),
    "another program": lambda case, draw: case["environment"].update(
        SAGEMAKER_PROGRAM=draw(st.sampled_from(["other.py", "", "\udcff.py", "-c.py"]))
    ),
    "ports beyond all ports": lambda case, draw: case["environment"].update(ENTRYPOINT_PORT_STRIDE="5000"),
}
OF_RESOURCES = {
    "more": lambda found, draw: found.update(draw(st.dictionaries(odd_texts, anything))),
    "odd interface": lambda found, draw: found.update(network_interface_name=draw(anything)),
    "no interface": lambda found, draw: found.pop("network_interface_name"),
    "no hosts": lambda found, draw: found.pop("hosts"),
    "odd hosts": lambda found, draw: found.update(hosts=draw(anything)),
    "an odd host": lambda found, draw: found["hosts"].append(draw(odd_names)),
    "a host twice": lambda found, draw: found["hosts"].append(found["hosts"][0]),
    "many hosts": lambda found, draw: found.update(hosts=[f"algo-{i}" for i in range(1, 5000)]),
    "somebody else": lambda found, draw: found.update(current_host=draw(anything | odd_names)),
    "nobody": lambda found, draw: found.pop("current_host"),
    "odd groups": lambda found, draw: found.update(instance_groups=draw(anything)),
    "an odd group": lambda found, draw: found.setdefault("instance_groups", []).append(draw(anything)),
    "a group of strangers": lambda found, draw: found.setdefault("instance_groups", []).append(
        {"instance_group_name": "g7", "hosts": draw(good_names)}
    ),
    "an empty group": lambda found, draw: found.setdefault("instance_groups", []).append(
        {"instance_group_name": "g8", "hosts": []}
    ),
}
MISTAKES |= {
    f"resources: {name}": lambda case, draw, make=make: make(case["resourceconfig"], draw)
    for name, make in OF_RESOURCES.items()
}


@st.composite
def wrong_ones(draw, mistake: str) -> dict:
    """Return the description of a job with this mistake, and sometimes with another one."""
    case = draw(right_ones(sorted(MODES)))
    for name in [mistake, *draw(st.lists(st.sampled_from(sorted(MISTAKES)), max_size=1))]:
        with contextlib.suppress(LookupError, AttributeError, TypeError):  # what it would spoil is spoilt already
            MISTAKES[name](case, draw)
    return case


# --- what holds, whatever they hold ---


def planned(base: Path, case: dict, host: str = "") -> tuple[Job, Plan]:
    """Return the job and the plan that this host of the case, or `host`, makes of the config files."""
    if host:
        case = {**case, "resourceconfig": {**case["resourceconfig"], "current_host": host}}
    for file in (base / "input/config").glob("*.json"):
        file.unlink()
    write_config(base, *(case[name] for name in ("resourceconfig", "hyperparameters", "inputdataconfig")))
    job = read_job(base, case["environment"], Path("/run/entrypoint"), case["gpus"])
    return job, plan_for(job)


def check_error(text: str) -> None:
    assert text.strip()
    assert text.isprintable(), "an error is one line, without control characters"
    assert len(text) < 2000
    assert SECRET not in text


def check_texts(plan: Plan) -> None:
    text, value = render(plan), as_json(plan)
    assert json.loads(json.dumps(value)) == value
    assert len(value["processes"]) == len(plan.processes)
    assert all(f"host {host}, rank {rank}" in text for rank, host in enumerate(plan.hosts))
    assert f"--api_key {SECRET}" not in text and f"'{SECRET}'" not in text


def check(base: Path, case: dict) -> Job | None:
    """Check that a case gives a plan or a short error. Return its job, if it gives a plan."""
    try:
        job, plan = planned(base, case)
    except ConfigError as error:
        note(str(error))
        this_host(base)
        saved, errors = read_what_can_be(base, case["environment"], Path("/run/entrypoint"), case["gpus"])
        for each in (error, *errors):
            check_error(str(each))
        assert saved is None or saved.cluster.coordinator.name in case["resourceconfig"]["hosts"]
        return None
    check_plan(plan, job)
    check_texts(plan)
    for host in {plan.hosts[0], plan.hosts[-1]} - {job.cluster.me.name}:
        assert planned(base, case, host)[1] == plan
    return job


TIMES = [1, pytest.param(32, marks=pytest.mark.more)]  # every run draws other cases
patient = settings(print_blob=True, suppress_health_check=list(HealthCheck))


@pytest.mark.unmeasured
@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("mode", MODES)
def test_right_config_files_give_a_plan_or_an_error_of_one_line(tmp_path: Path, mode: str, times: int) -> None:
    modes = set()

    @settings(patient, max_examples=CASES[times]["right"])
    @given(right_ones([mode]))
    def end(case: dict) -> None:
        if job := check(tmp_path, case):  # as the first, simplest one is
            modes.add(job.mode)

    end()
    assert mode in modes and modes <= {mode, "single"}


@pytest.mark.unmeasured
@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_wrong_config_files_give_a_plan_or_an_error_of_one_line(tmp_path: Path, mistake: str, times: int) -> None:
    @settings(patient, max_examples=CASES[times]["wrong"])
    @given(wrong_ones(mistake))
    def end(case: dict) -> None:
        check(tmp_path, case)

    end()
