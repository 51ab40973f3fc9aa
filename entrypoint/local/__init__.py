"""The same job on simulated hosts of this machine: as processes, or as containers of the image.

spec (what was asked for) -> tree (each host's folder, as SageMaker lays it out) -> an engine's commands
-> watch (start, copy lines, wait) -> summary. Every host runs the very supervisor that SageMaker's would.
"""
