"""Test mode `jax`: without jax, and with it, on two hosts of this machine."""

import importlib.util

import pytest

JAX = {"ENTRYPOINT_MODE": "jax"}


@pytest.mark.skipif(importlib.util.find_spec("jax") is not None, reason="jax is installed")
def test_without_jax_the_job_ends_before_the_script_starts(hosts):
    job = hosts(2, "train.py", code={"train.py": "print('trains')\n"}, environment=JAX)
    assert job.end() == [78, 78]
    assert "trains" not in job[1].log
    (failure,) = {text.splitlines()[0] for text in job.failures}
    assert "jax is not installed, and mode jax is for programs that train with it. Wanted it in the image" in failure


def test_a_program_of_another_language_may_find_jax_elsewhere(hosts):
    """A shell script may start a Python of its own."""
    code = {"train.sh": 'echo "$JAX_PROCESS_ID of $JAX_NUM_PROCESSES, $KERAS_BACKEND"\n'}
    job = hosts(2, "train.sh", code=code, environment={**JAX, "KERAS_BACKEND": "torch"})
    assert job.end() == [0, 0]
    assert "1 of 2, torch" in job[2].log
