"""Stand in for TensorFlow, only for the servers of the outcome table's parameter server jobs.

Some eighty jobs of that table start three to six parameter servers or worker servers each. The table tests only how
these are started, killed, stopped and awaited. A real one takes 0.7 s of processor
time and 90 MB, or all of TensorFlow, 5 s and 250 MB; this one takes 0.05 s. It is started by the same
programs/tf_server.py, listens on the same port of TF_CONFIG, waits for ever in join(), and dies of SIGTERM at once, as
the real one does. tests/cluster/test_cluster_outcomes.py has the cases with TensorFlow itself.
"""

from types import SimpleNamespace

from tensorflow.core.protobuf import config_pb2
from tensorflow.python.training import server_lib

__version__ = "0 (a stand-in)"
distribute = SimpleNamespace(Server=server_lib.Server)
train = SimpleNamespace(ClusterSpec=server_lib.ClusterSpec)
compat = SimpleNamespace(v1=SimpleNamespace(ConfigProto=config_pb2.ConfigProto))
errors = SimpleNamespace(OpError=type("OpError", (Exception,), {}))
