"""Test programs that report what a host has: output of one that fails is ignored, as in sagemaker-training."""

import pytest
import variables


@pytest.mark.parametrize("said, code, count", [('[{"nc_count": 2}, {"nc_count": 4}]', 0, 6), ("error=no driver", 1, 0)])
def test_neurons_are_those_of_a_program_that_succeeds(said, code, count, tmp_path, monkeypatch):
    program = tmp_path / "neuron-ls"
    program.write_text(f"#!/bin/sh\necho '{said}'\nexit {code}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert variables._neurons("ml.inf2.xlarge") == count


def test_a_folder_on_the_path_is_no_program(tmp_path, monkeypatch):
    (tmp_path / "neuron-ls").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert variables._neurons("ml.inf2.xlarge") == 0


def test_region_is_known_without_a_home(monkeypatch):
    def nobody(number):
        raise KeyError(number)

    monkeypatch.setattr("pwd.getpwuid", nobody)
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("AWS_CONFIG_FILE", raising=False)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    assert variables._region({}) == "eu-west-1"
