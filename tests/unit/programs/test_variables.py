"""Test programs that report the equipment of a host. Output of a failed one is ignored, as in sagemaker-training."""

import pytest
import variables


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
