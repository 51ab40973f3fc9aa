"""Provide the fixtures of the policy's tests."""

import pytest
from plays import Play


@pytest.fixture
def play(tmp_path):
    return lambda *args, **more: Play(tmp_path, *args, **more)
