"""Test plans: each folder of config files must give the recorded plan. tests/plan_checks.py has rules for every plan.

The expected text is tests/configs/<scenario>/plan.txt. After a change that is meant to change plans:
`pytest tests/unit/launcher/plan/test_plans.py --refresh`, then read the diff as you would read code.
"""

import json
import shutil
import sys
import time
from pathlib import Path

import pytest
from builders import names, read

from entrypoint.launcher.job.config import read_job
from entrypoint.launcher.plan.distributions import common
from entrypoint.launcher.plan.plan import Plan, Role
from entrypoint.launcher.plan.planner import plan_for
from entrypoint.launcher.plan.render import render

CONFIGS = Path(__file__).resolve().parents[3] / "configs"
SCENARIOS = sorted(path.name for path in CONFIGS.iterdir() if path.is_dir())


def plan_in(scenario: Path, base: Path) -> Plan:
    """Return the plan of the config folder `scenario`."""
    config = base / "input" / "config"
    config.mkdir(parents=True, exist_ok=True)
    for path in scenario.glob("*.json"):
        shutil.copy(path, config)
    environment_file = scenario / "environment"
    lines = environment_file.read_text().splitlines() if environment_file.exists() else []
    job = read_job(base, dict(line.split("=", 1) for line in lines), Path("/run/entrypoint"))
    return plan_for(job)


def normalised(text: str, base: Path) -> str:
    """Return the text with paths replaced that differ between machines."""
    for found, shown in (
        (str(common.PROGRAMS), "PROGRAMS"),
        (sys.executable, "python"),
        (str(base), "/opt/ml"),
    ):
        text = text.replace(found, shown)
    return text + "\n"


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_plan_of_a_scenario_equals_the_recorded_plan(scenario, tmp_path, request):
    text = normalised(render(plan_in(CONFIGS / scenario, tmp_path)), tmp_path)
    expected = CONFIGS / scenario / "plan.txt"
    if request.config.getoption("--refresh"):
        expected.write_text(text)
    assert text == expected.read_text()


def plan_of(base: Path, hosts: list[str], **settings: str) -> Plan:
    return plan_for(
        read(base, hosts, environment={f"ENTRYPOINT_{key.upper()}": text for key, text in settings.items()})
    )


def test_ipv6_address_of_jaxs_coordinator_stands_in_brackets(tmp_path):
    addresses = json.dumps({"algo-1": "fd00::1", "algo-2": "fd00::2"})
    plan = plan_of(tmp_path, names(2), mode="jax", host_addresses=addresses)
    env, other = (dict(spec.env) for spec in plan.processes if spec.role is Role.WORKER)
    assert env["JAX_COORDINATOR_ADDRESS"] == other["KERAS_DISTRIBUTION_JOB_ADDRESSES"] == "[fd00::1]:8476"
    assert (env["ENTRYPOINT_ADDRESS"], other["ENTRYPOINT_ADDRESS"]) == ("fd00::1", "fd00::2")


def test_plan_of_1000_hosts_takes_under_30_seconds(tmp_path):
    began = time.process_time()
    plan = plan_of(tmp_path, [f"algo-{number}" for number in range(1000)], mode="ps")
    assert len(plan.on("algo-7")) == 3
    assert time.process_time() - began < 30
