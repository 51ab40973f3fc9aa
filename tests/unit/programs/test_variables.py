"""Test programs that report the equipment of a host. Output of a failed one is ignored, as in sagemaker-training."""

import pytest
import variables

from entrypoint.check.doctor.check_arguments import VARIABLES
from entrypoint.check.doctor.job_values import FOLDERS


@pytest.mark.parametrize("said, code, count", [('[{"nc_count": 2}, {"nc_count": 4}]', 0, 6), ("error=no driver", 1, 0)])
def test_neuron_count_comes_from_a_successful_program(said, code, count, tmp_path, monkeypatch):
    program = tmp_path / "neuron-ls"
    program.write_text(f"#!/bin/sh\necho '{said}'\nexit {code}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert variables._neurons("ml.inf2.xlarge") == count


def test_folder_on_the_path_is_not_run_as_program(tmp_path, monkeypatch):
    (tmp_path / "neuron-ls").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert variables._neurons("ml.inf2.xlarge") == 0


def test_region_is_found_without_a_home_folder(monkeypatch):
    def nobody(number):
        raise KeyError(number)

    monkeypatch.setattr("pwd.getpwuid", nobody)
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("AWS_CONFIG_FILE", raising=False)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    assert variables._region({}) == "eu-west-1"


def test_doctor_knows_the_variables_that_a_script_gets(monkeypatch):
    """The doctor's layer may not import the prepare step's programs, so it has the names and the folders itself."""
    monkeypatch.delenv("SAGEMAKER_BASE_DIR", raising=False)
    task = {
        "hyperparameters": {"sagemaker_program": "train.py"},
        "of_the_script": {},
        "of_frameworks": {},
        "arguments": [],
        "input_data_config": {},
        "resource_config": {"current_host": "algo-1", "hosts": ["algo-1"], "topology": ["one"]},
    }
    made = {name: value for name, value in variables.variables(task).items() if name.startswith("SM_")}
    assert made.keys() == VARIABLES
    assert {name: made[name] for name in FOLDERS} == FOLDERS
