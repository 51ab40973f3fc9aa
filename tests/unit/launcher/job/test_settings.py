"""Test settings.py, and that the table of settings agrees with it."""

import json
import re
from pathlib import Path

import pytest

from entrypoint.cli.main import run
from entrypoint.launcher.host.descendants import MARK
from entrypoint.launcher.job.channels import SHARDS
from entrypoint.launcher.job.job import MARKS
from entrypoint.launcher.job.settings import FOR_USERS, SET_BY_US, SETTINGS, Settings, read_settings
from entrypoint.launcher.plan.plan import ADDRESS, ATTEMPT
from entrypoint.launcher.plan.ssh import OPTIONS, RANKS_SOCKET
from entrypoint.simulate.spec import settings_in

ROOT = Path(__file__).resolve().parents[4]
TABLE = (ROOT / "entrypoint/launcher/job/settings.md").read_text()


def test_number_of_user_settings_is_limited():
    assert len(FOR_USERS) <= 34


def test_table_lists_each_user_setting_with_default_and_meaning():
    rows = [re.fullmatch(r"\| `ENTRYPOINT_(\w+)` \| (.*?) ?\| (.+) \|", row) for row in TABLE.splitlines()[2:]]
    shown = {row[1].lower(): row[2] for row in rows}
    assert list(shown) == FOR_USERS and len(rows) == len(FOR_USERS)
    for name, text in shown.items():
        default = SETTINGS[name].default
        words = ",".join(map(str, default)) if isinstance(default, tuple) else default
        # Where the default depends on the job, the text gives it.
        depends = default in ("", ()) or name in ("processes_per_host", "ps_count")
        assert text == ("" if depends else json.dumps(words).strip('"')), name


def test_parsers_accept_the_defaults():
    """If a user sets a default as the table shows it, it has the same meaning."""
    for name, setting in SETTINGS.items():
        default = setting.default
        if default in (0, "", ()):
            continue  # "not given"
        shown = ",".join(map(str, default)) if isinstance(default, tuple) else str(default)
        settings, warnings, errors = read_settings({f"ENTRYPOINT_{name.upper()}": shown}, {})
        assert getattr(settings, name) == default
        assert not warnings and not errors


def test_graces_end_before_sagemaker_sends_sigkill():
    """The 120 s from SIGTERM to SIGKILL (API, StopTrainingJob) are enough for both graces and the last reports."""
    assert Settings().stop_grace + Settings().failure_grace + 10 < 120


def test_page_and_command_show_each_user_setting(capsys):
    assert (ROOT / "docs/settings.md").read_text().endswith("\n" + TABLE)
    assert run(["settings"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition("=")[0] for line in lines] == re.findall(r"^\| `(\w+)`", TABLE, re.MULTILINE)
    assert "ENTRYPOINT_PEER_TIMEOUT=5.0  Seconds of silence after which a host is lost." in "\n".join(lines)
    assert not re.search(r"`|\]\(|\|", "".join(lines)), "plain text"


def test_settings_command_wraps_lines_at_terminal_width(capsys, monkeypatch):
    monkeypatch.setattr("entrypoint.cli.help.width_of", lambda file: 60)
    assert run(["settings"]) == 0
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 60
    assert "\nENTRYPOINT_PEER_TIMEOUT=5.0\n    Seconds of silence after which" in printed


@pytest.mark.parametrize("setting", ["run_dir", "heartbeat"])
def test_internal_setting_is_undocumented_and_no_hyperparameter(setting):
    name = f"sagemaker_entrypoint_{setting}"
    assert setting.upper() not in TABLE
    [error] = read_settings({}, {name: "/tmp/x"})[2]
    assert f"unknown hyperparameter {name}" in str(error)


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
def test_warning_about_unknown_variable_names_nearest_setting(variable, near):
    settings, warnings, errors = read_settings({variable: "ps", "OTHER": "x"}, {})
    assert settings == Settings() and not errors
    question = f"; did you mean {near}? `entrypoint settings` lists all" if near else ""
    assert warnings == [f"environment variable {variable} is not a setting of the launcher; ignored{question}"]


def test_variables_set_by_the_launcher_are_no_settings():
    """A script of a job may call `entrypoint plan`, or `entrypoint local`, whose hosts belong to another job."""
    assert {SHARDS, ADDRESS, ATTEMPT, MARK, MARKS, RANKS_SOCKET, OPTIONS} == SET_BY_US
    environment = dict.fromkeys(SET_BY_US, "x")
    assert read_settings(environment, {}) == (Settings(), [], [])
    assert settings_in({**environment, "ENTRYPOINT_MODE": "ps"}) == {"ENTRYPOINT_MODE": "ps"}


def test_other_settings_are_read_despite_a_wrong_one():
    environment = {
        "ENTRYPOINT_MODE": "none such",
        "ENTRYPOINT_CONTROL_PORT": "8000",
        "ENTRYPOINT_PEER_TIMEOUT": "never",
    }
    settings, _, errors = read_settings(environment, {"sagemaker_entrypoint_peer_timeout": 2})
    assert settings == Settings(control_port=8000, peer_timeout=2.0)
    assert [str(error).split()[2] for error in errors] == ["ENTRYPOINT_MODE", "ENTRYPOINT_PEER_TIMEOUT"]
