"""Test what needs TensorFlow: parameter servers and training over several processes. Slow to import."""

import re

import pytest

pytestmark = pytest.mark.tensorflow
PS = {"sagemaker_parameter_server_enabled": "true"}


@pytest.mark.more  # programs of TensorFlow 1 are cells of tests/cluster/test_cluster_matrix.py
def test_a_tf1_worker_does_not_wait_for_its_session(hosts):
    """Its session is there at once, not after the 30 s that it sleeps if the chief has made no variables yet."""
    job = hosts(2, "tf1_sessions.py", hyperparameters=PS, environment={"ENTRYPOINT_PS_COUNT": "1"})
    assert job.end(within=300) == [0, 0]
    waited = float(re.search(r"worker/0\] session after ([\d.]+) s", job[2].log).group(1))
    assert waited < 25
