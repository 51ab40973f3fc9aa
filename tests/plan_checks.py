"""Check the properties of every plan of any job."""

import json
import os
from collections import Counter
from typing import Any

from entrypoint.launcher.job.choices import Mode
from entrypoint.launcher.job.cluster import Part
from entrypoint.launcher.job.job import Job
from entrypoint.launcher.plan.plan import ALL_HOSTS, PREFLIGHT, Duty, Need, Plan, Role


def tf_configs(plan: Plan) -> list[tuple[Any, dict[str, Any]]]:
    """Return (process, its TF_CONFIG) for all processes that have one."""
    specs = [spec for spec in plan.processes if "TF_CONFIG" in dict(spec.env)]
    return [(spec, json.loads(spec.environment(())["TF_CONFIG"])) for spec in specs]


def check_plan(plan: Plan, job: Job) -> None:
    """Check a plan's hosts, processes, needs, ports, tasks and ranks."""
    hosts = job.cluster.hosts
    assert sorted(plan.hosts) == sorted(job.resource_config["hosts"])
    assert plan.hosts == tuple(host.name for host in hosts)
    order = [(list(Part).index(host.part), host.name) for host in hosts]
    assert order == sorted(order) and job.cluster.coordinator.part is Part.TRAINS
    keys = {(spec.host, spec.name) for spec in plan.processes}
    assert len(keys) == len(plan.processes), "nothing has two names"
    assert {host for host, _ in keys} == set(plan.hosts), "every host has something to do"
    assert any(spec.decides for spec in plan.processes)
    for spec in plan.processes:
        for word in (*spec.argv, *(part for entry in spec.environment(()).items() for part in entry)):
            assert b"\0" not in os.fsencode(word), "it could not be started"
    for host in hosts:
        ports = [port for spec in plan.on(host.name) for port in spec.ports] + [host.port(job.settings.control_port)]
        assert all(0 < port < 65536 for port in ports)
        assert len(ports) == len(set(ports)), f"ports clash on {host.name}"
    _check_needs(plan, keys)
    _check_tasks(plan, job)
    if job.mode in _SHAPES:
        _SHAPES[job.mode](plan, job)


def _check_needs(plan: Plan, keys: set[tuple[str, str]]) -> None:
    """Check that every awaited process exists, and that processes never wait in a circle."""
    reached = {(host, PREFLIGHT) for host in plan.hosts}  # every host gets through it by itself
    keys = keys | reached

    def named(need: Need) -> set[tuple[str, str]]:
        return {(host, need.process) for host in plan.hosts if need.host in (ALL_HOSTS, host)}

    for spec in plan.processes:
        assert all(named(need) and named(need) <= keys for need in spec.needs)
    while reached != keys:
        ready = {(spec.host, spec.name) for spec in plan.processes if all(named(n) <= reached for n in spec.needs)}
        assert ready - reached, "processes wait for one another in a circle"
        reached |= ready


def _check_tasks(plan: Plan, job: Job) -> None:
    """Check that all tasks have the same cluster, and that each task of it runs once, on the host of its address."""
    told = tf_configs(plan)
    if not told:
        return
    cluster = told[0][1]["cluster"]
    at = {host.name: host.address for host in job.cluster.hosts}
    for spec, config in told:
        kind, index = config["task"]["type"], config["task"]["index"]
        # A strategy that an evaluator makes finds itself in its own cluster.
        own = {"evaluator": ["localhost:0"]} if kind == "evaluator" and job.mode == "mwms" else {}
        assert config["cluster"] == {**cluster, **own}
        if kind == "evaluator":
            assert spec.host == job.evaluator
        else:
            address, _, port = cluster[kind][index].rpartition(":")
            assert (address, int(port)) == (at[spec.host], spec.ports[0])
    wanted = Counter((kind, index) for kind, addresses in cluster.items() for index in range(len(addresses)))
    wanted += Counter([("evaluator", 0)] if job.evaluator else [])
    assert Counter((config["task"]["type"], config["task"]["index"]) for _, config in told) == wanted
    every = [address for addresses in cluster.values() for address in addresses]
    assert len(every) == len(set(every))


# --- the shapes of the modes ---


def _of_ps(plan: Plan, job: Job) -> None:
    settings, count = job.settings, len(job.cluster.training) * job.processes_per_host
    servers = settings.ps_workers == "server"
    cluster = tf_configs(plan)[0][1]["cluster"]
    chief_name = "master" if settings.ps_chief_name == "master" else "chief"
    assert set(cluster) - {"worker"} == {chief_name, "ps"}
    assert len(cluster[chief_name]) == 1
    assert len(cluster["ps"]) == (settings.ps_count or len(job.cluster.serving))
    assert len(cluster.get("worker", [])) == max(count - 1, servers)
    scripts = [spec for spec in plan.processes if spec.duty is Duty.SCRIPT]
    chief = next(spec for spec in scripts if spec.host == plan.hosts[0])
    assert chief.role is Role.CHIEF
    assert not servers or len(scripts) == 1
    hidden = [spec for spec in plan.processes if dict(spec.env).get("CUDA_VISIBLE_DEVICES") == "-1"]
    assert {spec.role for spec in hidden} == {Role.PS}
    for spec in hidden:  # the user's program finds his code installed, and all hosts there
        assert spec.duty is Duty.SERVER and spec.runs_program is (settings.ps_servers == "script")
        assert (spec.argv == chief.argv and spec.needs == chief.needs) is spec.runs_program


def _of_mwms(plan: Plan, job: Job) -> None:
    configs = tf_configs(plan)
    assert set(configs[0][1]["cluster"]) == {"worker"}
    assert len(configs) == len(job.cluster.training) * job.processes_per_host + bool(job.evaluator)


def _of_mpi(plan: Plan, job: Job) -> None:
    ranks = [spec.name for spec in plan.processes if spec.duty is Duty.RANK]
    assert ranks == [f"rank {number}" for number in range(len(ranks))]
    if not job.mpi_options:  # which may have another number
        assert len(ranks) == len(job.cluster.training) * job.processes_per_host
    assert [spec.host for spec in plan.processes if spec.duty is Duty.LAUNCHER] == [plan.hosts[0]]


def _of_jax(plan: Plan, job: Job) -> None:
    processes = [(spec, dict(spec.env)) for spec in plan.processes if spec.role is Role.WORKER]
    total = len(job.cluster.training) * job.processes_per_host
    assert [spec.name for spec, _ in processes] == [f"worker/{index}" for index in range(total)]
    assert [spec.host for spec, _ in processes if spec.ports] == [plan.hosts[0]]
    at = f"{job.cluster.coordinator.address}:{processes[0][0].ports[0]}"
    for index, (_, env) in enumerate(processes):  # Keras has names of its own for the same
        for prefix, place in (("JAX", "COORDINATOR_ADDRESS"), ("KERAS_DISTRIBUTION", "JOB_ADDRESSES")):
            names = (place, "NUM_PROCESSES", "PROCESS_ID")
            assert [env[f"{prefix}_{name}"] for name in names] == [at, str(total), str(index)]


_SHAPES = {Mode.PS: _of_ps, Mode.MWMS: _of_mwms, Mode.MPI: _of_mpi, Mode.JAX: _of_jax}
