"""Test instance groups: config files determine order, parts and plans, or cause an error of one clear line."""

import pytest
from builders import PROGRAM, resources, write_config

from entrypoint.base.errors import ConfigError
from entrypoint.launcher.job.choices import Mode
from entrypoint.launcher.job.cluster import Part
from entrypoint.launcher.job.config import read_job, read_what_can_be
from entrypoint.launcher.job.job import Job
from entrypoint.launcher.plan.plan import Duty, Role
from entrypoint.launcher.plan.planner import plan_for

PS, MWMS, MPI = (f"sagemaker_{name}_enabled" for name in ("parameter_server", "multi_worker_mirrored_strategy", "mpi"))
DISTRIBUTION, PS_GROUPS = "sagemaker_distribution_instance_groups", "sagemaker_entrypoint_ps_groups"
PER_HOST = "sagemaker_mpi_num_of_processes_per_host"
GROUPS = {  # name: (type, hosts as SageMaker lists them, in no order)
    "data": ("ml.c5.18xlarge", ["algo-2", "algo-11", "algo-1"]),
    "train": ("ml.p3.16xlarge", ["algo-3", "algo-10"]),
}
HOSTS = ["algo-1", "algo-10", "algo-11", "algo-2", "algo-3"]


def listed(groups) -> list[dict]:
    return [
        {"instance_group_name": name, "instance_type": type_, "hosts": hosts} for name, (type_, hosts) in groups.items()
    ]


def read(base, hyperparameters, groups=GROUPS, me="algo-1", gpus=0, environment=None) -> Job:
    found = listed(groups) if isinstance(groups, dict) else groups
    write_config(base, resources(HOSTS, me, instance_groups=found), {**PROGRAM, **hyperparameters}, {})
    return read_job(base, environment or {}, base / "run", gpus)


def parts(job: Job) -> dict[Part, list[str]]:
    return {part: [host.name for host in job.cluster.hosts if host.part is part] for part in Part}


@pytest.mark.parametrize("switch", [PS, MWMS, MPI])
@pytest.mark.parametrize(
    "given", ['["train"]', "['train']", "train", '"train"', ["train"], '"[\\"train\\"]"', " train "], ids=repr
)
def test_distribution_covers_its_named_groups_in_every_encoding(tmp_path, switch, given):
    job = read(tmp_path, {switch: "true", DISTRIBUTION: given, PER_HOST: "1"})
    assert parts(job) == {
        Part.TRAINS: ["algo-10", "algo-3"],
        Part.SERVES: [],
        Part.OUTSIDE: ["algo-1", "algo-11", "algo-2"],
    }
    assert job.cluster.coordinator.name == "algo-10"


def test_every_hosts_script_decides_without_a_distribution(tmp_path):
    plan = plan_for(read(tmp_path, {DISTRIBUTION: '["train"]'}))
    assert plan.hosts == tuple(HOSTS)
    assert {spec.duty for spec in plan.processes if spec.role is Role.SCRIPT} == {Duty.SCRIPT}


def test_groups_of_parameter_servers_belong_to_the_distribution(tmp_path):
    """Groups that serve belong to it, named or not. Groups that neither train nor serve stay outside."""
    three = {**GROUPS, "data": ("ml.c5.xlarge", ["algo-11", "algo-1"]), "memory": ("ml.r5.large", ["algo-2"])}
    for distribution in ("train", "train,memory"):
        job = read(tmp_path, {PS: "true", PS_GROUPS: "memory", DISTRIBUTION: distribution}, three)
        assert parts(job) == {
            Part.TRAINS: ["algo-10", "algo-3"],
            Part.SERVES: ["algo-2"],
            Part.OUTSIDE: ["algo-1", "algo-11"],
        }


def test_single_chief_with_own_servers_keeps_ps_mode(tmp_path):
    alone = {"train": ("ml.p3.16xlarge", ["algo-3"]), "memory": ("ml.r5.large", [h for h in HOSTS if h != "algo-3"])}
    job = read(tmp_path, {PS: "true", PS_GROUPS: "memory"}, alone)
    assert job.mode is Mode.PS and not job.warnings
    job = read(tmp_path, {PS: "true", DISTRIBUTION: "train"}, alone)
    assert job.mode is Mode.SINGLE and [w for w in job.warnings if "one host" in w]
    deciding = [spec.host for spec in plan_for(job).processes if spec.decides]
    assert deciding == ["algo-3"]


@pytest.mark.parametrize(
    "types, distribution, gpus, count",
    [
        (("ml.p3.16xlarge", "ml.p3.16xlarge"), "train", 8, 8),
        (("ml.c5.large", "ml.m5.24xlarge"), "train", 0, 1),
        (("ml.p3.16xlarge", "ml.c5n.large"), "train", 8, 1),  # what this host has says nothing of those that train
        (("ml.c5.large", "ml.r5.large"), "", 0, 1),
    ],
)
def test_number_of_ranks_equals_gpus_known_to_all_hosts(tmp_path, types, distribution, gpus, count):
    groups = {name: (type_, GROUPS[name][1]) for name, type_ in zip(GROUPS, types, strict=True)}
    job = read(tmp_path, {MPI: "true", DISTRIBUTION: distribution}, groups, gpus=gpus)
    assert job.processes_per_host == count


@pytest.mark.parametrize(
    "trains", ["ml.p3.16xlarge", "ml.g5.xlarge", "ml.trn1.32xlarge", "ml.inf1.xlarge", "ml.dl1.24xlarge"]
)
@pytest.mark.parametrize(
    "asked, wanted",
    [
        ({MPI: "true"}, f"wanted hyperparameter {PER_HOST}"),
        ({"sagemaker_entrypoint_mode": "jax"}, "wanted ENTRYPOINT_PROCESSES_PER_HOST$"),
    ],
)
def test_number_of_processes_is_required_if_some_hosts_lack_gpus(tmp_path, trains, asked, wanted):
    groups = {**GROUPS, "train": (trains, GROUPS["train"][1])}
    asked = {**asked, DISTRIBUTION: "train"}
    with pytest.raises(ConfigError, match=f"no host can see how many GPUs another one has; {wanted}"):
        read(tmp_path, asked, groups)
    job = read(tmp_path, {**asked, "sagemaker_entrypoint_processes_per_host": "2"}, groups)
    there = [spec.host for spec in plan_for(job).processes if spec.role in (Role.WORKER, Role.RANK)]
    assert there == ["algo-10", "algo-10", "algo-3", "algo-3"]


DATA, TRAIN = listed(GROUPS)
ASKED = {MWMS: "true", DISTRIBUTION: '["train"]'}
BAD = {
    # (hyperparameters, instance_groups): what the line has to say
    "no such group": ({MWMS: "true", DISTRIBUTION: "gpus"}, [DATA, TRAIN], ["'gpus'", "one of 'data', 'train'"]),
    "no groups at all": (ASKED, None, [DISTRIBUTION, "'train'", "there are none"]),
    "no such group of servers": ({PS: "true", PS_GROUPS: "ps"}, [DATA, TRAIN], ["ENTRYPOINT_PS_GROUPS", "'ps'"]),
    "a group without hosts": (
        ASKED,
        [DATA, {**TRAIN, "hosts": []}],
        ["'train', which has no hosts", "wanted one that has"],
    ),
    "a host in two groups": (ASKED, [DATA, {**TRAIN, "hosts": ["algo-1", "algo-10", "algo-3"]}], ['"algo-1" in more']),
    "a host in no group": (ASKED, [DATA, {**TRAIN, "hosts": ["algo-3"]}], ['"algo-10" in no group']),
    "a foreign host": (
        ASKED,
        [DATA, {**TRAIN, "hosts": ["algo-3", "algo-10", "x"]}],
        ['"x" in a group and not among'],
    ),
    "a group twice": (ASKED, [DATA, TRAIN, TRAIN], ['"train" more than once', "each group once"]),
    "a group named twice": ({MWMS: "true", DISTRIBUTION: "train,train"}, [DATA, TRAIN], [DISTRIBUTION, "each once"]),
    "a number": ({MWMS: "true", DISTRIBUTION: "[1]"}, [DATA, TRAIN], [DISTRIBUTION, "names of instance groups"]),
    "an object": ({MWMS: "true", DISTRIBUTION: '{"a": 1}'}, [DATA, TRAIN], [DISTRIBUTION, "instance group"]),
    "half a list": ({MWMS: "true", DISTRIBUTION: '["train"'}, [DATA, TRAIN], [DISTRIBUTION, "names of instance"]),
    "servers everywhere": ({PS: "true", PS_GROUPS: "data,train"}, [DATA, TRAIN], ["every group", "for the chief"]),
    "servers of no parameters": ({MPI: "true", PS_GROUPS: "data"}, [DATA, TRAIN], ["the mode is mpi", "wanted ps"]),
    "a text in place of groups": ({}, "train", ["instance_groups", "wanted a list"]),
    "a text in place of a group": ({}, ["train"], ['"train" in instance_groups', "instance_group_name"]),
    "a group without a name": ({}, [{"hosts": HOSTS}], ["instance_group_name"]),
    "a group of a number": ({}, [{"instance_group_name": "a", "hosts": [1]}], ["list of hosts"]),
}


@pytest.mark.parametrize("hyperparameters, groups, said", BAD.values(), ids=BAD)
def test_bad_groups_are_refused_in_one_line(tmp_path, hyperparameters, groups, said):
    with pytest.raises(ConfigError) as raised:
        read(tmp_path, hyperparameters, groups)
    text = str(raised.value)
    assert "\n" not in text and "wanted" in text
    assert [part for part in said if part not in text] == []


def test_host_with_a_config_error_finds_same_coordinator(tmp_path):
    """Through the coordinator, the other hosts learn of the error."""
    with pytest.raises(ConfigError):
        read(tmp_path, {**ASKED, "sagemaker_program": "null"})
    saved, errors = read_what_can_be(tmp_path, {}, tmp_path / "run")
    assert [str(error).partition(":")[0] for error in errors] == ["no program"]
    assert saved is not None and saved.cluster.coordinator.name == "algo-10"


@pytest.mark.parametrize(
    "given, groups",
    [*((given, GROUPS) for given in (None, "null", "", "[]", "None")), (None, None), (None, [])],
)
def test_all_hosts_train_without_named_or_existing_groups(tmp_path, given, groups):
    job = read(tmp_path, {MWMS: "true", DISTRIBUTION: given}, groups)
    assert parts(job)[Part.TRAINS] == HOSTS
