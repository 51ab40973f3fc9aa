"""Test plans: folders of config in, plans as text out; and what holds for every plan.

The expected text is tests/configs/<scenario>/plan.txt. After a change that is meant to change plans:
`pytest tests/unit/launcher/plan/test_plans.py --refresh`, then read the diff as you would read code.
"""

import json
import random
import shutil
import sys
from collections import Counter
from pathlib import Path

import pytest
from builders import PROGRAM, names, resources
from hypothesis import given, settings
from hypothesis import strategies as st

from entrypoint.launcher.job.config import read_job
from entrypoint.launcher.plan.distributions import common
from entrypoint.launcher.plan.plan import ALL_HOSTS, PREFLIGHT, Duty, Plan, Role
from entrypoint.launcher.plan.planner import plan_for
from entrypoint.launcher.plan.render import render

CONFIGS = Path(__file__).resolve().parents[3] / "configs"
SCENARIOS = sorted(path.name for path in CONFIGS.iterdir() if path.is_dir())


def plan_in(scenario: Path, base: Path, me: str = "") -> Plan:
    """Return the plan of the config folder `scenario`, as host `me` sees it (default: the file's host)."""
    config = base / "input" / "config"
    config.mkdir(parents=True, exist_ok=True)
    for path in scenario.glob("*.json"):
        shutil.copy(path, config)
    if me:
        file = config / "resourceconfig.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), "current_host": me}))
    environment_file = scenario / "environment"
    lines = environment_file.read_text().splitlines() if environment_file.exists() else []
    job = read_job(base, dict(line.split("=", 1) for line in lines), Path("/run/entrypoint"))
    return plan_for(job)


def normalised(text: str, base: Path) -> str:
    """Return the text without what differs between machines."""
    for found, shown in (
        (str(common.PROGRAMS), "PROGRAMS"),
        (sys.executable, "python"),
        (str(base), "/opt/ml"),
    ):
        text = text.replace(found, shown)
    return text + "\n"


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_plan(scenario, tmp_path, request):
    text = normalised(render(plan_in(CONFIGS / scenario, tmp_path)), tmp_path)
    expected = CONFIGS / scenario / "plan.txt"
    if request.config.getoption("--refresh"):
        expected.write_text(text)
    assert text == expected.read_text()


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_host_of_a_scenario_makes_the_same_plan(scenario, tmp_path):
    first = plan_in(CONFIGS / scenario, tmp_path)
    for host in first.hosts:
        assert plan_in(CONFIGS / scenario, tmp_path, me=host) == first


# --- what holds for every plan ---

requests = st.fixed_dictionaries(
    {
        "mode": st.sampled_from(["single", "ps", "mwms", "mpi", "jax"]),
        "processes_per_host": st.integers(1, 5),
        "ps_workers": st.sampled_from(["script", "server"]),
        "ps_servers": st.sampled_from(["server", "script"]),
        "ps_chief_name": st.sampled_from(["chief", "master"]),
        "ps_chief_first": st.sampled_from(["auto", "always", "never"]),
    },
    optional={"ps_count": st.integers(1, 30), "evaluator": st.sampled_from(["first", "last"])},
).filter(lambda request: "evaluator" not in request or request["mode"] in ("ps", "mwms"))


def job_of(base: Path, hosts: list[str], me: str, request: dict):
    config = base / "input" / "config"
    config.mkdir(parents=True, exist_ok=True)
    (config / "resourceconfig.json").write_text(json.dumps(resources(hosts, me)))
    (config / "hyperparameters.json").write_text(json.dumps(PROGRAM))
    variables = {f"ENTRYPOINT_{key.upper()}": str(value) for key, value in request.items()}
    return read_job(base, variables, Path("/run/entrypoint"))


def tf_configs(plan: Plan) -> list[dict]:
    return [json.loads(spec.environment(())["TF_CONFIG"]) for spec in plan.processes if "TF_CONFIG" in dict(spec.env)]


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return tmp_path_factory.mktemp("base")


@settings(max_examples=120)
@given(count=st.integers(1, 13), request=requests, seed=st.integers(0, 9))
def test_every_plan(base, count, request, seed):
    hosts = names(count)
    random.Random(seed).shuffle(hosts)
    plan = plan_for(job_of(base, hosts, hosts[0], request))

    # Every host makes the same one.
    assert plan_for(job_of(base, hosts, hosts[-1], request)) == plan
    assert plan.hosts == tuple(sorted(hosts))

    # Every host has something to do, nothing has two names or two homes.
    keys = [(spec.host, spec.name) for spec in plan.processes]
    assert len(keys) == len(set(keys))
    assert {host for host, _ in keys} == set(hosts)
    assert any(spec.decides for spec in plan.processes)

    # No two processes of a host share a port, nor take one of ours.
    for host in plan.hosts:
        ports = [port for spec in plan.on(host) for port in spec.ports]
        assert len(ports) == len(set(ports))
        assert 7979 not in ports and all(0 < port < 65536 for port in ports)

    # What is waited for exists; the waiting has no circle. Every host gets through the preflight by itself.
    keys += [(host, PREFLIGHT) for host in plan.hosts]
    for spec in plan.processes:
        for need in spec.needs:
            for host in plan.hosts if need.host == ALL_HOSTS else [need.host]:
                assert (host, need.process) in keys
    reached: set[tuple[str, str]] = {(host, PREFLIGHT) for host in plan.hosts}
    while len(reached) < len(keys):
        more = reached | {
            (spec.host, spec.name)
            for spec in plan.processes
            if all(
                (host, need.process) in reached
                for need in spec.needs
                for host in (plan.hosts if need.host == ALL_HOSTS else [need.host])
            )
        }
        assert more > reached, "processes wait for one another in a circle"
        reached = more

    # All tasks see one cluster; each of its tasks runs exactly once, where its address says.
    configs = tf_configs(plan)
    # A strategy that an evaluator makes finds itself in its own cluster.
    alone = [config["cluster"].pop("evaluator", []) for config in configs if config["task"]["type"] == "evaluator"]
    wanted = [["localhost:0"]] if request["mode"] == "mwms" else [[]]
    assert alone == (wanted if configs and "evaluator" in request else [])
    assert len({json.dumps(config["cluster"], sort_keys=True) for config in configs}) <= 1
    if configs:
        cluster = configs[0]["cluster"]
        listed = Counter((task, index) for task, addresses in cluster.items() for index in range(len(addresses)))
        listed += Counter([("evaluator", 0)] if "evaluator" in request else [])  # beside the cluster
        assert Counter((c["task"]["type"], c["task"]["index"]) for c in configs) == listed
        addresses = [address for each in cluster.values() for address in each]
        assert len(addresses) == len(set(addresses))
        for spec in plan.processes:
            if "TF_CONFIG" in dict(spec.env):
                task = json.loads(spec.environment(())["TF_CONFIG"])["task"]
                if task["type"] == "evaluator":
                    assert spec.host == {"first": plan.hosts[0], "last": plan.hosts[-1]}[request["evaluator"]]
                    continue
                assert cluster[task["type"]][task["index"]] == f"{spec.host}:{spec.ports[0]}"

    # The shapes that TensorFlow takes.
    mode = request["mode"]
    if mode == "ps" and (count > 1 or request["ps_workers"] == "server"):
        assert set(cluster) - {"worker"} == {request["ps_chief_name"], "ps"}
        assert len(cluster[request["ps_chief_name"]]) == 1
        assert len(cluster["ps"]) == request.get("ps_count", count)
        assert len(cluster.get("worker", [])) == max(
            count * request["processes_per_host"] - 1, request["ps_workers"] == "server"
        )
        scripts = [spec for spec in plan.processes if spec.duty is Duty.SCRIPT]
        chief = next(spec for spec in scripts if spec.host == plan.hosts[0])
        assert chief.role is Role.CHIEF
        assert request["ps_workers"] == "script" or len(scripts) == 1
        hidden = [s for s in plan.processes if dict(s.env).get("CUDA_VISIBLE_DEVICES") == "-1"]
        assert {s.role for s in hidden} == {Role.PS}
        for spec in hidden:  # the user's program finds his code installed, and all hosts there
            assert spec.duty is Duty.SERVER and spec.runs_program is (request["ps_servers"] == "script")
            assert (spec.argv == chief.argv and spec.needs == chief.needs) is spec.runs_program
    elif mode == "mwms":
        assert set(cluster) == {"worker"}
        assert len(configs) == count * request["processes_per_host"] + ("evaluator" in request)
    elif mode == "mpi":
        ranks = [spec.name for spec in plan.processes if spec.duty is Duty.RANK]
        assert ranks == [f"rank {n}" for n in range(count * request["processes_per_host"])]
        assert [spec.host for spec in plan.processes if spec.duty is Duty.LAUNCHER] == [plan.hosts[0]]
    elif mode == "jax":
        processes = [(spec, dict(spec.env)) for spec in plan.processes if spec.role is Role.WORKER]
        total = count * request["processes_per_host"]
        assert [spec.name for spec, _ in processes] == [f"worker/{index}" for index in range(total)]
        assert [env["JAX_PROCESS_ID"] for _, env in processes] == [str(index) for index in range(total)]
        assert {env["JAX_NUM_PROCESSES"] for _, env in processes} == {str(total)}
        assert {env["JAX_COORDINATOR_ADDRESS"] for _, env in processes} == {
            f"{plan.hosts[0]}:{processes[0][0].ports[0]}"
        }
        assert [spec.host for spec, _ in processes if spec.ports] == [plan.hosts[0]]
        for _, env in processes:  # Keras has names of its own for the same
            assert env["KERAS_DISTRIBUTION_JOB_ADDRESSES"] == env["JAX_COORDINATOR_ADDRESS"]
            assert env["KERAS_DISTRIBUTION_NUM_PROCESSES"] == env["JAX_NUM_PROCESSES"]
            assert env["KERAS_DISTRIBUTION_PROCESS_ID"] == env["JAX_PROCESS_ID"]


def test_an_ipv6_address_of_jaxs_coordinator_stands_in_brackets(tmp_path):
    addresses = json.dumps({"algo-1": "fd00::1", "algo-2": "fd00::2"})
    plan = plan_for(job_of(tmp_path, names(2), "algo-2", {"mode": "jax", "host_addresses": addresses}))
    (_, env), (_, other) = [(spec, dict(spec.env)) for spec in plan.processes if spec.role is Role.WORKER]
    assert env["JAX_COORDINATOR_ADDRESS"] == other["KERAS_DISTRIBUTION_JOB_ADDRESSES"] == "[fd00::1]:8476"
    assert (env["ENTRYPOINT_ADDRESS"], other["ENTRYPOINT_ADDRESS"]) == ("fd00::1", "fd00::2")


def test_a_plan_of_a_thousand_hosts_does_not_take_long(base):
    import time

    began = time.process_time()
    hosts = [f"algo-{number}" for number in range(1000)]
    plan = plan_for(job_of(base, hosts, "algo-7", {"mode": "ps"}))
    assert len(plan.on("algo-7")) == 3
    assert time.process_time() - began < 30


def test_no_secret_is_printed(tmp_path):
    job = job_of(tmp_path, names(2), "algo-1", {"mode": "mpi", "token": "geheim"})
    assert job.settings.token == "geheim"
    assert "geheim" not in render(plan_for(job))


def test_one_host_alone_can_be_shown(tmp_path):
    plan = plan_for(job_of(tmp_path, names(3), "algo-1", {"mode": "ps"}))
    text = render(plan, only_host="algo-2")
    assert "host algo-2, rank 1" in text
    assert "host algo-1" not in text and "host algo-3" not in text
