"""The fixtures of the tests of the policy."""

import pytest
from plays import Play


@pytest.fixture
def play(tmp_path):
    return lambda *args, **more: Play(tmp_path, *args, **more)
