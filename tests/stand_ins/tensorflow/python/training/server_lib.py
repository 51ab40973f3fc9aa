"""Stand in for TensorFlow's server."""

import socket
import threading


class ClusterSpec:
    def __init__(self, cluster):
        self.cluster = cluster


class Server:
    def __init__(self, cluster_spec, job_name, task_index, protocol, config, start):
        address, _, port = cluster_spec.cluster[job_name][task_index].rpartition(":")
        self.target = f"{protocol}://{address}:{port}"
        self._socket = socket.create_server(("", int(port)))  # all addresses, as TensorFlow's do

    def join(self):
        threading.Event().wait()
