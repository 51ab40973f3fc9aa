"""settings.py: the table of settings, and that it is the truth."""

import dataclasses
from pathlib import Path

import pytest

from entrypoint.channels import SHARDS
from entrypoint.errors import ConfigError
from entrypoint.kin import MARK
from entrypoint.local.spec import settings_in
from entrypoint.plan import ATTEMPT
from entrypoint.settings import SET_BY_US, Settings, read_settings, settings_table
from entrypoint.ssh import OPTIONS, RANKS_SOCKET


def test_the_table_has_every_setting_once_with_its_default_and_meaning():
    rows = settings_table().splitlines()
    assert rows[0].startswith("| setting |")
    body = [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows[2:]]
    assert [row[0].strip("` ") for row in body] == [
        f"ENTRYPOINT_{f.name.upper()}" for f in dataclasses.fields(Settings)
    ]
    defaults = {row[0].strip("` "): row[1].strip("` ") for row in body}
    assert defaults["ENTRYPOINT_PEER_TIMEOUT"] == "5.0"
    assert defaults["ENTRYPOINT_LOG_PREFIX"] == "true"
    assert defaults["ENTRYPOINT_LOG_STREAMS"] == "false"
    assert defaults["ENTRYPOINT_MODE"] == "auto"
    assert all(len(row) == 3 and row[2] for row in body)


def test_defaults_pass_their_own_parsers():
    """What the table shows as a default may be written down and means the same."""
    for f in dataclasses.fields(Settings):
        if f.default in (0, "", ()):
            continue  # "not given"
        shown = ",".join(map(str, f.default)) if isinstance(f.default, tuple) else str(f.default)
        settings, warnings = read_settings({f"ENTRYPOINT_{f.name.upper()}": shown}, {})
        assert getattr(settings, f.name) == f.default
        assert not warnings


def test_grace_leaves_time_before_sagemaker_kills():
    """120 s from SIGTERM to SIGKILL (API, StopTrainingJob) hold the scripts' grace, the servers' and the good-byes."""
    assert Settings().stop_grace + Settings().failure_grace + 10 < 120


def test_the_page_of_the_docs_is_what_the_command_prints():
    page = Path(__file__).resolve().parents[2] / "docs" / "settings.md"
    assert page.read_text().endswith("\n" + settings_table() + "\n")


def test_what_a_host_says_of_its_own_machine_is_no_hyperparameter():
    with pytest.raises(ConfigError, match="unknown hyperparameter sagemaker_entrypoint_run_dir"):
        read_settings({}, {"sagemaker_entrypoint_run_dir": "/tmp/x"})


@pytest.mark.parametrize(
    "variable, near",
    [
        ("ENTRYPOINT_MOD", "ENTRYPOINT_MODE"),
        ("ENTRYPOINT_mode", "ENTRYPOINT_MODE"),
        ("ENTRYPOINT_PROCESS_PER_HOST", "ENTRYPOINT_PROCESSES_PER_HOST"),
        ("ENTRYPOINT_FAILURE_GRACE_PERIOD", "ENTRYPOINT_FAILURE_GRACE"),
        ("ENTRYPOINT_QQQQ", None),
    ],
)
def test_an_unknown_variable_is_warned_of_with_the_nearest_setting(variable, near):
    settings, warnings = read_settings({variable: "ps"}, {})
    assert settings == Settings()
    question = f"; did you mean {near}?" if near else ""
    assert warnings == [f"environment variable {variable} is not a setting of ours, ignored{question}"]


def test_an_unknown_choice_gets_the_nearest_one():
    with pytest.raises(ConfigError, match=r"is 'allways'; wanted one of auto, always, never; did you mean always\?$"):
        read_settings({"ENTRYPOINT_PIN_GPUS": "allways"}, {})


def test_what_the_launcher_sets_for_its_children_is_not_warned_of():
    """As where a script of a job calls `entrypoint plan`, or `entrypoint local`, whose hosts are of another job."""
    assert {SHARDS, ATTEMPT, MARK, RANKS_SOCKET, OPTIONS} == SET_BY_US
    environment = dict.fromkeys(SET_BY_US, "x")
    assert read_settings(environment, {}) == (Settings(), [])
    assert settings_in({**environment, "ENTRYPOINT_MODE": "ps"}) == {"ENTRYPOINT_MODE": "ps"}


def test_a_peer_timeout_below_two_heartbeats_is_refused():
    with pytest.raises(ConfigError, match="at least twice"):
        read_settings({"ENTRYPOINT_PEER_TIMEOUT": "1", "ENTRYPOINT_HEARTBEAT": "0.8"}, {})
