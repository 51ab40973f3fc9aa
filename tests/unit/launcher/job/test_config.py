"""Test config.py, which makes a Job of config files and environment, or raises an error of one clear line.

test_parity.py shows that the script gets the values that sagemaker-training would give it.
"""

import pytest
from builders import PROGRAM, names, read, resources, write_config

from entrypoint.base.errors import ConfigError
from entrypoint.launcher.job.choices import Mode
from entrypoint.launcher.job.config import read_job
from entrypoint.launcher.plan.planner import plan_for

PS = "sagemaker_parameter_server_enabled"
MWMS = "sagemaker_multi_worker_mirrored_strategy_enabled"
MPI = "sagemaker_mpi_enabled"
PER_HOST = "sagemaker_mpi_num_of_processes_per_host"
OPTIONS = "sagemaker_mpi_custom_mpi_options"
SMDDP = "sagemaker_distributed_dataparallel_enabled"
SMDDP_OPTIONS = "sagemaker_distributed_dataparallel_custom_mpi_options"
DEEP = "[" * 200 + "]" * 200


def complaint(action) -> str:
    """Return the text of the ConfigError that `action` raises, and check that it is one line."""
    with pytest.raises(ConfigError) as raised:
        action()
    text = str(raised.value)
    assert "\n" not in text
    return text


ONE = resources(["algo-1"])
BAD_RESOURCES = {
    # content of resourceconfig.json: what the line has to say
    "missing": (None, ["is missing", "SageMaker mounts it"]),
    "empty": ("", ["is empty", "wanted a JSON object"]),
    "blank": (" \n\n", ["is empty", "wanted a JSON object"]),
    "not JSON": ('{"hosts": [', ["is not JSON", "wanted a JSON object"]),
    "null": ("null", ["NoneType", "wanted an object"]),
    "a list": ("[]", ["list", "wanted an object"]),
    "a number": ("5", ["int", "wanted an object"]),
    "very deep": ("[" * 100_000, ["is not JSON", "wanted a JSON object"]),
    "no hosts": ({"current_host": "algo-1"}, ["hosts = null", "wanted a list"]),
    "hosts null": ({**ONE, "hosts": None}, ["hosts = null", "wanted a list"]),
    "hosts text": ({**ONE, "hosts": "algo-1"}, ['hosts = "algo-1"', "wanted a list"]),
    "hosts empty": ({**ONE, "hosts": []}, ["hosts = []", "at least one"]),
    "hosts of numbers": ({**ONE, "hosts": ["algo-1", 2]}, ['["algo-1", 2]', "host name"]),
    "a host without a name": ({**ONE, "hosts": ["algo-1", ""]}, ['["algo-1", ""]', "host name"]),
    "an unlisted host": ({**ONE, "current_host": "algo-7"}, ['"algo-7"', 'one of its hosts ["algo-1"]']),
    "no current host": ({"hosts": ["algo-1"]}, ["current_host = null", 'one of its hosts ["algo-1"]']),
    "current host a list": ({**ONE, "current_host": ["algo-1"]}, ['["algo-1"]', "one of its hosts"]),
    "a name that is an option": ({**ONE, "hosts": ["-oProxyCommand=id"]}, ["-oProxyCommand", "letters, digits"]),
    "a name of two lines": ({**ONE, "hosts": ["algo-1\nPort 22"]}, ["algo-1\\nPort 22", "letters, digits"]),
    "a pattern for a name": ({**ONE, "hosts": ["*"]}, ['"*"', "letters, digits"]),
    "too many": ({**ONE, "hosts": [f"algo-{n}" for n in range(1, 2000)]}, ["1999 hosts", "at most 1000"]),
    "NUL in a text": ({**ONE, "current_instance_type": "ml\0"}, ["NUL"]),
    "duplicates": ({**ONE, "hosts": ["algo-1", "algo-2", "algo-1"]}, ["algo-1 more than once", "each once"]),
}


@pytest.mark.parametrize("content, said", BAD_RESOURCES.values(), ids=BAD_RESOURCES)
def test_bad_resource_config_is_refused_in_one_line(tmp_path, content, said):
    write_config(tmp_path, content, PROGRAM)
    text = complaint(lambda: read_job(tmp_path, {}, tmp_path / "run"))
    assert str(tmp_path / "input/config/resourceconfig.json") in text
    assert [part for part in said if part not in text] == []


def test_resource_config_that_is_not_utf8_is_refused(tmp_path):
    write_config(tmp_path, "{}", PROGRAM)
    (tmp_path / "input/config/resourceconfig.json").write_bytes(b'{"hosts": ["\xff"]}')
    text = complaint(lambda: read_job(tmp_path, {}, tmp_path / "run"))
    assert "resourceconfig.json cannot be read" in text


def test_error_about_five_hundred_hosts_is_short(tmp_path):
    write_config(tmp_path, resources(names(500), "who?"), PROGRAM)
    assert len(complaint(lambda: read_job(tmp_path, {}, tmp_path / "run"))) < 600


BAD_REQUESTS = {
    # hyperparameters, settings by the environment, what the line has to say
    "bad hyperparameters file": ("{", {}, ["hyperparameters.json is not JSON", "wanted a JSON object"]),
    "list of hyperparameters": ("[1]", {}, ["hyperparameters.json holds a JSON list", "wanted an object"]),
    "unknown mode": ({}, {"MODE": "paramserver"}, ["ENTRYPOINT_MODE is 'paramserver'", "ps, mwms, mpi"]),
    "unknown mode, by hyperparameter": (
        {"sagemaker_entrypoint_mode": '"horo"'}, {}, ["sagemaker_entrypoint_mode is 'horo'", "ps, mwms, mpi"]),
    "two switches": ({PS: "true", MPI: "true"}, {}, ["two modes at once", PS, MPI, "one of them"]),
    "three switches": ({PS: "1", MPI: "1", MWMS: "True"}, {}, ["two modes at once", PS, MPI, MWMS]),
    "environment against switch": ({PS: "true"}, {"MODE": "mpi"}, ["two modes at once", "ENTRYPOINT_MODE=mpi", PS]),
    "single against switch": ({MPI: "true"}, {"MODE": "single"}, ["ENTRYPOINT_MODE=single", MPI]),
    "a switch that is no boolean": ({MPI: "maybe"}, {}, [f'{MPI} is "maybe"', "true or false"]),
    "a switch that is an object": ({PS: '{"enabled": true}'}, {}, [PS, "true or false"]),
    "an evaluator with jax": (
        {}, {"MODE": "jax", "EVALUATOR": "first"},
        ["ENTRYPOINT_EVALUATOR", "the mode is jax", "takes part in every step", "wanted no evaluator"]),
    "an evaluator whose name is long": (
        {MWMS: "true"}, {"EVALUATOR": "[" * 100_000},
        ["ENTRYPOINT_EVALUATOR is '[[[", "[[[...; wanted first, last or one of"]),
    "no program": ({"sagemaker_program": "null"}, {}, ["no program", "sagemaker_program", "SAGEMAKER_PROGRAM"]),
    "empty program": ({"sagemaker_program": '""'}, {"TOKEN": "geheim"}, ["no program", "train.py"]),
    "no processes": ({}, {"PROCESSES_PER_HOST": "0"}, ["'0'", "1 to 512"]),
    "10,000 processes": ({}, {"PROCESSES_PER_HOST": "10000"}, ["'10000'", "1 to 512"]),
    "x processes": ({}, {"PROCESSES_PER_HOST": "x"}, ["'x'", "a whole number from 1 to 512"]),
    "half a process": ({}, {"PROCESSES_PER_HOST": "0.5"}, ["'0.5'", "a whole number"]),
    "no ranks": ({MPI: "true", PER_HOST: "0"}, {}, [f"{PER_HOST} is 0", "1 to 512"]),
    "10,000 ranks": ({MPI: "true", PER_HOST: "10000"}, {}, [f"{PER_HOST} is 10000", "1 to 512"]),
    "x ranks": ({MPI: "true", PER_HOST: "x"}, {}, [f'{PER_HOST} is "x"', "a whole number from 1 to 512"]),
    "-1 ranks, quoted": ({MPI: "true", PER_HOST: '"-1"'}, {}, [f'{PER_HOST} is "-1"', "1 to 512"]),
    "unknown setting": (
        {"sagemaker_entrypoint_procceses": "2"}, {},
        ["sagemaker_entrypoint_procceses", "sagemaker_entrypoint_processes_per_host"]),
    "unbalanced quote": ({MPI: "true", OPTIONS: '-x "A=1'}, {}, [OPTIONS, "No closing quotation", "mpirun options"]),
    "port": ({}, {"CONTROL_PORT": "70000"}, ["ENTRYPOINT_CONTROL_PORT", "'70000'", "1 to 65535"]),
    "seconds": ({}, {"STOP_GRACE": "nan"}, ["ENTRYPOINT_STOP_GRACE", "seconds from 0"]),
    "boolean": ({}, {"LOG_PREFIX": "nope"}, ["ENTRYPOINT_LOG_PREFIX", "true, false or streams"]),
    "addresses": ({}, {"HOST_ADDRESSES": "algo-1=1.2.3.4"}, ["ENTRYPOINT_HOST_ADDRESSES", "JSON object"]),
    "NUL in a value": ({"x": '"a\\u0000b"'}, {}, ["NUL"]),
    "NUL in the program": ({"sagemaker_program": '"a\\u0000.py"'}, {}, ["NUL"]),
    "half a surrogate pair": ({"x": '"\\ud800"'}, {}, ["ud800", "surrogate"]),
    "= in a name": ({"a=b": "1"}, {}, ["a=b", "="]),
    "half a pair in mpirun's options": ({OPTIONS: '"-x A=\\ud800"'}, {}, [OPTIONS, "ud800"]),
    "a program that is an option": ({"sagemaker_program": '"-c.py"'}, {}, ['"-c.py"', "no option"]),
    "addresses of lists": ({}, {"HOST_ADDRESSES": '{"algo-1": ["x"]}'}, ["ENTRYPOINT_HOST_ADDRESSES"]),
    "an address that is an option": (
        {}, {"HOST_ADDRESSES": '{"algo-1": "-oProxyCommand=id"}'}, ["ENTRYPOINT_HOST_ADDRESSES"]),
    "very deep addresses": ({}, {"HOST_ADDRESSES": "[" * 100_000}, ["ENTRYPOINT_HOST_ADDRESSES"]),
    "a token that no HTTP header can hold": ({}, {"TOKEN": "ge\nheim"}, ["ENTRYPOINT_TOKEN", "wanted"]),
    "a token of blanks": ({}, {"TOKEN": "  "}, ["ENTRYPOINT_TOKEN", "not blanks alone"]),
    "a token longer than a header": ({}, {"TOKEN": "x" * 5000}, ["ENTRYPOINT_TOKEN", "4096"]),
    "more parameter servers than ports": ({}, {"PS_COUNT": "100000"}, ["2000"]),
    "more workers than an environment can name": (
        {MWMS: "true"}, {"PROCESSES_PER_HOST": "512"},
        ["2048 processes in all (512 on each of 4 hosts)", "at most 2000"]),
    "an unknown choice": (
        {}, {"PIN_GPUS": "allways"}, ["is 'allways'; wanted one of auto, always, never; did you mean always?"]),
    "a timeout below two heartbeats": ({}, {"PEER_TIMEOUT": "1", "HEARTBEAT": "0.8"}, ["at least twice"]),
    **{
        f"channel groups: {text}": ({}, {"CHANNEL_GROUPS": text}, ["CHANNEL_GROUPS is", "wanted own, same or off"])
        for text in ("yes", "train", "train=", "own,same", "train=own,train=same", "=", "a=own,,")
    },
    "data-parallel beside a switch": ({SMDDP: "true", PS: "true"}, {}, ["two modes at once", SMDDP, PS]),
    "data-parallel beside a mode": (
        {SMDDP: "true"}, {"MODE": "mwms"}, ["two modes at once", SMDDP, "ENTRYPOINT_MODE=mwms"]),
    "a data-parallel switch that is no boolean": ({SMDDP: "maybe"}, {}, [f'{SMDDP} is "maybe"', "true or false"]),
    "data-parallel options with an unbalanced quote": (
        {SMDDP: "true", SMDDP_OPTIONS: "-x 'A"}, {}, [f"{SMDDP_OPTIONS} does not fall into words"]),
    "model-parallel": (
        {"mp_parameters": '{"partitions": 2}', MPI: "true", SMDDP: "false"}, {},
        ["mp_parameters", "model-parallel", "wanted a job without"]),
    "deep hyperparameters": (f'{{"a": {DEEP}}}', {}, ["hyperparameters.json holds values inside of values"]),
    "the port of parameter servers": (
        {PS: "true"}, {"CONTROL_PORT": "2223"},
        ["ps/0 of algo-1 has port 2223, and so has the control channel", "ENTRYPOINT_CONTROL_PORT"]),
    "the port of ssh": (
        {MPI: "true"}, {"SSH_PORT": "7979"},
        ["sshd of algo-1 has port 7979, and so has the control channel", "ENTRYPOINT_CONTROL_PORT"]),
    "a port beyond all ports": (
        {MWMS: "true"}, {"PORT_BASE": "60000"},
        ["of algo-1 has port 67979, beyond 65535", "ENTRYPOINT_CONTROL_PORT"]),
}  # fmt: skip


@pytest.mark.parametrize("hyperparameters, settings, said", BAD_REQUESTS.values(), ids=BAD_REQUESTS)
def test_bad_request_is_refused_in_one_line(tmp_path, hyperparameters, settings, said):
    environment = {f"ENTRYPOINT_{name}": value for name, value in settings.items()}
    text = complaint(lambda: plan_for(read(tmp_path, 4, hyperparameters, environment)))
    assert [part for part in said if part not in text] == []
    assert "heim" not in text  # of the token


ON = ["true", "True", '"true"', '"True"', "1", '"1"', True, 1]
OFF = ["false", "False", '"false"', '"False"', "0", '"0"', "null", "None", '""', False, 0, None]


@pytest.mark.parametrize("switch, mode", [(PS, Mode.PS), (MWMS, Mode.MWMS), (MPI, Mode.MPI)])
@pytest.mark.parametrize("value", ON + OFF, ids=repr)
def test_sdk_switch_chooses_the_mode_in_every_encoding(tmp_path, switch, mode, value):
    assert read(tmp_path, 2, {switch: value}).mode is (mode if value in ON and value is not False else Mode.SINGLE)


JAX = {"ENTRYPOINT_MODE": "jax"}
REQUESTS = [
    # hyperparameters, environment, GPUs of the host: what the job has
    ({PS: "false", MPI: "true", MWMS: "null"}, {}, 0, {"mode": Mode.MPI}),
    ({}, {"ENTRYPOINT_MODE": "mpi"}, 0, {"mode": Mode.MPI}),
    ({"sagemaker_entrypoint_mode": "ps"}, {}, 0, {"mode": Mode.PS}),
    ({"sagemaker_entrypoint_mode": "ps"}, {"ENTRYPOINT_MODE": "mwms"}, 0, {"mode": Mode.MWMS}),
    ({MPI: "true"}, {"ENTRYPOINT_MODE": "mpi"}, 0, {"mode": Mode.MPI}),
    ({MPI: "true"}, {"ENTRYPOINT_MODE": "auto"}, 0, {"mode": Mode.MPI}),
    ({PS: "False"}, {"ENTRYPOINT_MODE": "single"}, 0, {"mode": Mode.SINGLE}),
    ({}, {}, 0, {"processes_per_host": 1}),
    ({MPI: "true"}, {}, 0, {"processes_per_host": 1}),
    ({MPI: "true"}, {}, 4, {"processes_per_host": 4}),
    ({MPI: "true", PER_HOST: "2"}, {}, 4, {"processes_per_host": 2}),
    ({MPI: "true", PER_HOST: '"2"'}, {}, 4, {"processes_per_host": 2}),
    ({MPI: "true", PER_HOST: "null"}, {}, 4, {"processes_per_host": 4}),
    ({MPI: "true", PER_HOST: "2"}, {"ENTRYPOINT_PROCESSES_PER_HOST": "3"}, 4, {"processes_per_host": 3}),
    ({MPI: "true", "sagemaker_entrypoint_processes_per_host": "512"}, {}, 4, {"processes_per_host": 512}),
    ({PS: "true"}, {}, 4, {"processes_per_host": 1}),
    ({MWMS: "true"}, {"ENTRYPOINT_PROCESSES_PER_HOST": "2"}, 0, {"processes_per_host": 2}),
    ({}, JAX, 0, {"processes_per_host": 1}),
    ({}, JAX, 4, {"processes_per_host": 4}),
    ({PER_HOST: "3"}, JAX, 4, {"processes_per_host": 4}),  # that is for MPI
    ({}, {**JAX, "ENTRYPOINT_PROCESSES_PER_HOST": "2"}, 4, {"processes_per_host": 2}),
    # As a shell would split them; the SDK sends Python's None as text.
    ({OPTIONS: "\"-x A='b c' --verbose\""}, {}, 0, {"mpi_options": ("-x", "A=b c", "--verbose")}),
    ({OPTIONS: '""'}, {}, 0, {"mpi_options": ()}),
    ({OPTIONS: "null"}, {}, 0, {"mpi_options": ()}),
    ({MPI: "True", OPTIONS: "None", PER_HOST: "None"}, {}, 0, {"mpi_options": (), "processes_per_host": 1}),
]


@pytest.mark.parametrize("hyperparameters, environment, gpus, expected", REQUESTS)
def test_mode_processes_and_options_follow_hyperparameters_settings_gpus(
    tmp_path, hyperparameters, environment, gpus, expected
):
    job = read(tmp_path, 2, hyperparameters, environment, gpus=gpus)
    assert {name: getattr(job, name) for name in expected} == expected


def test_null_setting_has_its_default(tmp_path):
    job = read(tmp_path, 1, {"sagemaker_entrypoint_log_prefix": "null", "sagemaker_entrypoint_mode": "null"})
    assert (job.settings.log_prefix, job.settings.mode) == ("true", "auto")


@pytest.mark.parametrize(
    "named, used", [("lo", {"lo"}), ("nosuch0", {None}), (None, {None, "eth0"}), ("", {None, "eth0"})]
)
def test_existing_interface_is_used_and_eth0_is_default(tmp_path, named, used):
    write_config(tmp_path, {**resources(names(2)), "network_interface_name": named}, PROGRAM)
    job = read_job(tmp_path, {}, tmp_path / "run")
    assert job.cluster.interface in used
    told = [w for w in job.warnings if f"{named or 'eth0'}" in w and "does not exist" in w]
    assert bool(told) is (job.cluster.interface is None)


def test_several_hosts_without_a_mode_cause_a_warning(tmp_path):
    assert [w for w in read(tmp_path, 3).warnings if "3 hosts" in w and "ENTRYPOINT_MODE" in w]
    assert not read(tmp_path, 3, {}, {"ENTRYPOINT_MODE": "single"}).warnings
    assert not read(tmp_path, 1).warnings


def test_ps_mode_on_one_host_runs_only_the_script(tmp_path):
    job = read(tmp_path, 1, {PS: "true"})
    assert job.mode is Mode.SINGLE
    assert [w for w in job.warnings if "one host" in w]
    assert read(tmp_path, 1, {PS: "true"}, {"ENTRYPOINT_PS_WORKERS": "server"}).mode is Mode.PS


def test_every_setting_may_be_a_hyperparameter(tmp_path):
    job = read(tmp_path, 1, {"sagemaker_entrypoint_stop_grace": "7.5", "sagemaker_entrypoint_token": '"abc"'})
    assert (job.settings.stop_grace, job.settings.token) == (7.5, "abc")
    assert job.program.arguments == ()  # and is no argument of the script
