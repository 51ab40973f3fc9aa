"""In the place of TensorFlow, for the servers of the outcome table's parameter server jobs, and for them alone.

Some eighty jobs of that table start three to six parameter servers or worker servers each, and what happens to these
from outside (started, killed, stopped, waited for) is all that the table looks at. A real one takes 2.5 s of processor
time and 300 MB; this one takes 0.05 s. It is started by the same children/tf_server.py, listens on the same port of
TF_CONFIG, waits for ever in join(), and dies of SIGTERM at once, as the real one does.
tests/cluster/test_cluster_outcomes.py has the cases with TensorFlow itself.
"""

import socket
import threading
from types import SimpleNamespace


class _ClusterSpec:
    def __init__(self, cluster):
        self.cluster = cluster


class _Server:
    def __init__(self, cluster_spec, job_name, task_index, protocol, config, start):
        address, _, port = cluster_spec.cluster[job_name][task_index].rpartition(":")
        self.target = f"{protocol}://{address}:{port}"
        self._socket = socket.create_server(("", int(port)))  # all addresses, as TensorFlow's do

    def join(self):
        threading.Event().wait()


class _ConfigProto:
    def __init__(self):
        self.device_count = {}


__version__ = "0 (a stand-in)"
distribute = SimpleNamespace(Server=_Server)
train = SimpleNamespace(ClusterSpec=_ClusterSpec)
compat = SimpleNamespace(v1=SimpleNamespace(ConfigProto=_ConfigProto))
errors = SimpleNamespace(OpError=type("OpError", (Exception,), {}))
