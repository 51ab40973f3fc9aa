"""Launch, watch and end distributed TensorFlow training jobs inside a SageMaker container.

Data flows in one direction (see README.md in this folder):
config files -> Job -> Plan -> Supervisor -> Outcome -> failure file and exit code.
"""

__version__ = "0.1.0"
