"""Launches, watches and ends distributed TensorFlow training jobs inside a SageMaker container.

The story, one direction only (see README.md in this folder):
config files -> Job -> Plan -> Supervisor -> Outcome -> failure file and exit code.
"""

__version__ = "0.1.0"
