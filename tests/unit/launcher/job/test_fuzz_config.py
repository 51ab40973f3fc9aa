"""Test config files from nearly right to garbage: they soon end in a plan or in an error of one line.

Real files in a folder. Hypothesis shrinks what fails to the smallest job that does.
"""

import contextlib
import json
import os
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, event, given, note, settings
from hypothesis import strategies as st

from entrypoint.base.errors import ConfigError
from entrypoint.launcher.job.cluster import Part
from entrypoint.launcher.job.config import read_job, read_what_can_be, this_host
from entrypoint.launcher.job.job import Job
from entrypoint.launcher.job.settings import Settings
from entrypoint.launcher.plan.plan import ALL_HOSTS, PREFLIGHT, Duty, Plan, Role
from entrypoint.launcher.plan.planner import plan_for
from entrypoint.launcher.plan.render import as_json, render

PARTS = 32  # of the cases, so that several processes can divide them
CASES = 5000 // PARTS
MORE = 1  # parts from which on they are left to --all; every run draws other cases
SECRET = "s3cr3t-Zq7Lw0Xk"  # stands for the user's; whatever comes out, it must not be in it

# --- what may stand in the files ---

good_names = st.integers(1, 11).map(lambda n: [f"algo-{i + 1}" for i in range(n)]).flatmap(st.permutations)
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
    st.binary(max_size=40),
    st.sampled_from(
        [b"", b" \n", b"{", b"nul", b"\xef\xbb\xbf{}", b"\xff\xfe{\x00}\x00", b'{"a": 1}{}', b"NaN", b"'a'"]
    ),
    st.sampled_from([50, 99, 101, 900, 990, 5000, 200_000]).map(lambda depth: nested(depth).encode()),
    st.sampled_from([80, 900, 990]).map(lambda depth: b'{"a": ' + nested(depth).encode() + b"}"),
    anything.map(lambda value: json.dumps(value).encode()),
)


# Hyperparameters as the SDK sends them (JSON text), and as people write them.
yes, no = (
    st.sampled_from(["true", '"true"', "True", "1", True]),
    st.sampled_from(["false", "False", False, None, "null"]),
)
counts = st.integers(1, 6).map(str) | st.integers(1, 6)
mpi_words = st.sampled_from(
    [
        "-np 3",
        "-np 100",
        "-x A=b",
        "-x A",
        "--mca btl tcp",
        "--NCCL_DEBUG=INFO",
        "-H algo-1:1",
        "'a b'",
        "--bind-to core",
    ]
)
PS, MWMS, MPI = (f"sagemaker_{name}_enabled" for name in ("parameter_server", "multi_worker_mirrored_strategy", "mpi"))
MODES = {
    "single": st.just({}) | st.fixed_dictionaries({PS: no, MPI: no}),
    "single by name": st.just({"sagemaker_entrypoint_mode": "single"}),
    "ps": st.fixed_dictionaries(
        {PS: yes},
        optional={
            "sagemaker_entrypoint_ps_workers": st.sampled_from(["script", "server"]),
            "sagemaker_entrypoint_ps_servers": st.sampled_from(["script", "server"]),
            "sagemaker_entrypoint_ps_count": st.integers(1, 40).map(str),
            "sagemaker_entrypoint_ps_chief_name": st.sampled_from(["chief", "master"]),
            "sagemaker_entrypoint_processes_per_host": counts,
            "sagemaker_entrypoint_evaluator": st.sampled_from(["first", "last", "algo-1"]),
        },
    ),
    "mwms": st.fixed_dictionaries(
        {MWMS: yes},
        optional={
            PS: no,
            "sagemaker_entrypoint_processes_per_host": counts,
            "sagemaker_entrypoint_evaluator": st.sampled_from(["first", "last", "algo-1"]),
        },
    ),
    "mpi": st.fixed_dictionaries(
        {MPI: yes},
        optional={
            "sagemaker_mpi_num_of_processes_per_host": counts,
            "sagemaker_mpi_custom_mpi_options": st.lists(mpi_words, max_size=4).map(" ".join),
        },
    ),
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


@st.composite
def groups_of(draw, hosts: list[str]) -> list[dict]:
    """Return the hosts in one to three instance groups, in random order, sometimes of different types."""
    of = [draw(st.integers(0, 2)) for _ in hosts]
    types = draw(
        st.sampled_from([["ml.c5.large"] * 3, ["ml.p3.8xlarge"] * 3, ["ml.c5.large", "ml.m5.large", "ml.p3.8xlarge"]])
    )
    return [
        {"instance_group_name": f"g{n}", "instance_type": types[n], "hosts": members}
        for n in draw(st.permutations(range(3)))
        if (members := [host for host, group in zip(hosts, of, strict=True) if group == n])
    ]


def parts_of(mode: str, names: list[str]):
    some = st.lists(st.sampled_from(names), min_size=1, unique=True)
    encoded = some.map(json.dumps) | some.map(repr) | some.map(",".join)
    optional = {"sagemaker_distribution_instance_groups": encoded}
    return st.fixed_dictionaries(
        {}, optional={**optional, "sagemaker_entrypoint_ps_groups": encoded} if mode == "ps" else optional
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


@st.composite
def right_ones(draw) -> dict:
    """Return a correct description of a job: the files' contents, and the environment."""
    hosts, mode = draw(good_names), draw(st.sampled_from(sorted(MODES)))
    program = draw(st.sampled_from(['"train.py"', "train.py", "train.sh", "train", '"a b.py"', "😀.py"]))
    environment = {}
    if draw(st.sampled_from([False, False, False, True])):  # simulated hosts
        environment["ENTRYPOINT_HOST_ADDRESSES"] = json.dumps({f"algo-{i}": f"127.9.0.{i}" for i in range(1, 14)})
        environment["ENTRYPOINT_PORT_STRIDE"] = "100"
    if draw(st.booleans()):
        environment["ENTRYPOINT_TOKEN"] = SECRET
    resources = {"current_host": draw(st.sampled_from(hosts)), "hosts": hosts, "network_interface_name": "eth0"}
    asked = {}
    if draw(st.sampled_from([False, False, True])):
        resources["instance_groups"] = draw(groups_of(hosts))
        asked = draw(parts_of(mode, [group["instance_group_name"] for group in resources["instance_groups"]]))
    return {
        "resourceconfig": resources,
        "hyperparameters": {"sagemaker_program": program, **draw(MODES[mode]), **draw(users), **asked},
        "inputdataconfig": draw(channels),
        "environment": environment,
        "gpus": draw(st.sampled_from([0, 0, 1, 8])),
    }


def of_resources(change):
    return lambda case, draw: change(case["resourceconfig"], draw)


def one_more(key: str, strategy):
    return lambda case, draw: case[key].update([(draw(strategy), draw(anything))])


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
    "more about resources": of_resources(lambda value, draw: value.update(draw(st.dictionaries(odd_texts, anything)))),
    "odd interface": of_resources(lambda value, draw: value.update(network_interface_name=draw(anything))),
    "no interface": of_resources(lambda value, draw: value.pop("network_interface_name")),
    "no hosts": of_resources(lambda value, draw: value.pop("hosts")),
    "odd hosts": of_resources(lambda value, draw: value.update(hosts=draw(anything))),
    "an odd host": of_resources(lambda value, draw: value["hosts"].append(draw(odd_names))),
    "a host twice": of_resources(lambda value, draw: value["hosts"].append(value["hosts"][0])),
    "many hosts": of_resources(lambda value, draw: value.update(hosts=[f"algo-{i}" for i in range(1, 5000)])),
    "somebody else": of_resources(lambda value, draw: value.update(current_host=draw(anything | odd_names))),
    "nobody": of_resources(lambda value, draw: value.pop("current_host")),
    "odd groups": of_resources(lambda value, draw: value.update(instance_groups=draw(anything))),
    "an odd group": of_resources(lambda value, draw: value["instance_groups"].append(draw(anything))),
    "a group of strangers": of_resources(
        lambda value, draw: value["instance_groups"].append({"instance_group_name": "g7", "hosts": draw(good_names)})
    ),
    "an empty group": of_resources(
        lambda value, draw: value["instance_groups"].append({"instance_group_name": "g8", "hosts": []})
    ),
    "an odd hyperparameter": one_more("hyperparameters", odd_texts),
    "an odd value": one_more("hyperparameters", known),
    "odd mpirun options": lambda case, draw: case["hyperparameters"].update(
        {MPI: True, "sagemaker_mpi_custom_mpi_options": draw(odd_options)}
    ),
    "two modes": lambda case, draw: case["hyperparameters"].update({PS: "true", MPI: "true"}),
    "no program": lambda case, draw: case["hyperparameters"].pop("sagemaker_program"),
    "an odd channel": one_more("inputdataconfig", odd_texts),
    "a setting": lambda case, draw: case["environment"].update([(draw(settings_names), draw(settings_texts))]),
    "another program": lambda case, draw: case["environment"].update(
        SAGEMAKER_PROGRAM=draw(st.sampled_from(["other.py", "", "\udcff.py", "-c.py"]))
    ),
    "ports beyond all ports": lambda case, draw: case["environment"].update(ENTRYPOINT_PORT_STRIDE="5000"),
}


@st.composite
def described(draw) -> dict:
    """A description of a job: file contents as bytes, or None for no file."""
    case = draw(right_ones())
    for name in draw(
        st.sampled_from([0, 0, 0, 1, 1, 1, 2]).flatmap(lambda n: st.lists(mistakes, min_size=n, max_size=n))
    ):
        if all(isinstance(part, dict) for part in list(case.values())[:4]):
            with contextlib.suppress(LookupError, AttributeError):  # what it would spoil is spoilt already
                MISTAKES[name](case, draw)
    files = {
        key: json.dumps(value).encode() if isinstance(value, dict) else value
        for key, value in case.items()
        if key not in ("environment", "gpus")
    }
    return {**case, **files}


mistakes = st.sampled_from(sorted(MISTAKES))

# --- what holds, whatever they hold ---


def write(config: Path, case: dict) -> None:
    for name in ("resourceconfig", "hyperparameters", "inputdataconfig"):
        file = config / f"{name}.json"
        file.unlink(missing_ok=True)
        if case[name] is not None:
            file.write_bytes(case[name])


def as_seen_by(base: Path, case: dict, host: str) -> Plan:
    """Return the plan that another host of the same job makes."""
    file = base / "input/config/resourceconfig.json"
    file.write_text(json.dumps({**json.loads(case["resourceconfig"]), "current_host": host}))
    return plan_for(read_job(base, case["environment"], Path("/run/entrypoint"), case["gpus"]))


def check_error(text: str) -> None:
    assert text.strip()
    assert text.isprintable(), "an error is one line, without control characters"
    assert len(text) < 2000
    assert SECRET not in text


def check_plan(plan: Plan, job: Job, case: dict) -> None:
    hosts = json.loads(case["resourceconfig"])["hosts"]
    order = [(list(Part).index(host.part), host.name) for host in job.cluster.hosts]
    assert order == sorted(order)
    assert sorted(plan.hosts) == sorted(hosts)
    assert plan.hosts == tuple(host.name for host in job.cluster.hosts)
    assert job.cluster.coordinator.part is Part.TRAINS

    keys = [(spec.host, spec.name) for spec in plan.processes]
    assert len(keys) == len(set(keys))
    assert {host for host, _ in keys} == set(hosts)
    assert any(spec.decides for spec in plan.processes)
    for spec in plan.processes:
        for need in spec.needs:
            there = [host for host in hosts if need.host in (ALL_HOSTS, host)]
            assert there
            assert need.process == PREFLIGHT or all((host, need.process) in keys for host in there)
        for word in (*spec.argv, *(part for entry in spec.environment(()).items() for part in entry)):
            assert b"\0" not in os.fsencode(word)  # else it cannot be started
    check_ports(plan, job)
    check_tasks(plan, job)
    check_ranks(plan)


def check_ports(plan: Plan, job: Job) -> None:
    for host in job.cluster.hosts:
        ports = [port for spec in plan.on(host.name) for port in spec.ports]
        ports.append(host.port(job.settings.control_port))
        assert all(0 < port < 65536 for port in ports)
        assert len(ports) == len(set(ports)), f"ports clash on {host.name}"


def check_tasks(plan: Plan, job: Job) -> None:
    tasks = [spec for spec in plan.processes if "TF_CONFIG" in dict(spec.env)]
    told = [(spec, json.loads(spec.environment(())["TF_CONFIG"])) for spec in tasks]
    if not told:
        return
    cluster = told[0][1]["cluster"]
    for spec, each in told:
        own = {"evaluator": ["localhost:0"]} if spec.role is Role.EVALUATOR and job.mode == "mwms" else {}
        assert each["cluster"] == {**cluster, **own}
    tasks = Counter((each["task"]["type"], each["task"]["index"]) for _, each in told)
    wanted = Counter((kind, index) for kind, addresses in cluster.items() for index in range(len(addresses)))
    if job.evaluator:
        wanted["evaluator", 0] += 1
    assert tasks == wanted
    every = [address for addresses in cluster.values() for address in addresses]
    assert len(every) == len(set(every))
    at = {host.name: host.address for host in job.cluster.hosts}
    for spec, each in told:
        kind, index = each["task"]["type"], each["task"]["index"]
        if kind != "evaluator":
            address, _, port = cluster[kind][index].rpartition(":")
            assert (address, int(port)) == (at[spec.host], spec.ports[0])


def check_ranks(plan: Plan) -> None:
    ranks = [int(spec.name.removeprefix("rank ")) for spec in plan.processes if spec.duty is Duty.RANK]
    assert ranks == list(range(len(ranks)))
    assert sum(spec.role is Role.LAUNCHER for spec in plan.processes) <= 1


def check_texts(plan: Plan) -> None:
    text, value = render(plan), as_json(plan)
    assert json.loads(json.dumps(value)) == value
    assert len(value["processes"]) == len(plan.processes)
    assert all(f"host {host}, rank {rank}" in text for rank, host in enumerate(plan.hosts))
    assert f"--api_key {SECRET}" not in text and f"'{SECRET}'" not in text


@pytest.mark.unmeasured
@pytest.mark.parametrize("part", [pytest.param(n, marks=[pytest.mark.more] * (n >= MORE)) for n in range(PARTS)])
def test_config_files_end_in_a_plan_or_in_one_line(tmp_path: Path, part: int) -> None:
    (tmp_path / "input/config").mkdir(parents=True)
    ends = Counter()

    @settings(
        max_examples=CASES,
        deadline=timedelta(seconds=60),
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(described())
    def end(case: dict) -> None:
        write(tmp_path / "input/config", case)
        this_host(tmp_path)
        try:
            job = read_job(tmp_path, case["environment"], Path("/run/entrypoint"), case["gpus"])
            plan = plan_for(job)
        except ConfigError as error:
            note(str(error))
            check_error(str(error))
            ends["error"] += 1
            event("error")
            saved, errors = read_what_can_be(tmp_path, case["environment"], Path("/run/entrypoint"), case["gpus"])
            for each in errors:
                check_error(str(each))
            if saved:
                assert saved.cluster.coordinator.name in json.loads(case["resourceconfig"])["hosts"]
            return
        ends[job.mode] += 1
        event(job.mode)
        check_plan(plan, job, case)
        check_texts(plan)
        for host in {plan.hosts[0], plan.hosts[-1]} - {job.cluster.me.name}:
            assert as_seen_by(tmp_path, case, host) == plan

    end()
    assert sum(ends.values()) >= CASES
    assert min(ends[kind] for kind in ("error", "single", "ps", "mwms", "mpi")) > CASES / 50, (
        f"too few of one kind: {ends}"
    )
